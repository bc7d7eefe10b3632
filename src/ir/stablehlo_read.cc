// Attributes of StableHLO text as values of a schema.
#include "src/ir/stablehlo_read.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

namespace weft::ir {
namespace {

// Lists in attributes are as long as a rank or a group of devices; a splat could ask for more than memory.
constexpr int64_t kMaxListed = int64_t{1} << 20;

}  // namespace

ShloAttr ShloAttr::Word(std::string word) {
  ShloAttr attr;
  attr.kind = Kind::kWord;
  attr.string = std::move(word);
  return attr;
}

ShloAttr ShloAttr::Int(int64_t value) {
  ShloAttr attr;
  attr.kind = Kind::kInt;
  attr.integer = value;
  return attr;
}

ShloAttr ShloAttr::Ints(std::vector<int64_t> values) {
  ShloAttr attr;
  attr.kind = Kind::kInts;
  attr.ints = std::move(values);
  return attr;
}

const ShloAttr* ShloAttr::Find(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

const ShloAttr* StableHloOp::Find(std::string_view attribute) {
  for (size_t i = 0; i < attributes_.size(); ++i) {
    const auto& [key, value] = attributes_[i];
    const ShloAttr* found = key == attribute ? &value : value.attribute_struct ? value.Find(attribute) : nullptr;
    if (found == nullptr) continue;
    understood_[i] = true;
    return found;
  }
  return nullptr;
}

ir::Ints StableHloOp::Ints(std::string_view attribute, const ir::Ints& absent) {
  const ShloAttr* found = Find(attribute);
  if (found == nullptr) return absent;
  switch (found->kind) {
    case ShloAttr::Kind::kInts: return ir::Ints(found->ints.begin(), found->ints.end());
    case ShloAttr::Kind::kList:
      if (found->list.empty()) return {};
      break;
    case ShloAttr::Kind::kTensor: {
      const int64_t count = found->type->count();
      if (!IsInteger(found->type->dtype) && !IsBool(found->type->dtype)) break;
      if (count > kMaxListed) break;
      ir::Ints values;
      for (int64_t i = 0; i < count; ++i) values.push_back(found->tensor->value.GetInt(found->splat ? 0 : i));
      return values;
    }
    default: break;
  }
  b.Fail(UserError("attribute ", attribute, " must be a list of integers"));
  return {};
}

int64_t StableHloOp::Int(std::string_view attribute, int64_t absent) {
  const ShloAttr* found = Find(attribute);
  if (found == nullptr) return absent;
  if (found->kind == ShloAttr::Kind::kInt) return found->integer;
  if (found->kind == ShloAttr::Kind::kUnit) return 1;
  b.Fail(UserError("attribute ", attribute, " must be an integer"));
  return absent;
}

std::string StableHloOp::Word(std::string_view attribute, std::string_view absent) {
  const ShloAttr* found = Find(attribute);
  if (found == nullptr) return std::string(absent);
  if (found->kind == ShloAttr::Kind::kWord || found->kind == ShloAttr::Kind::kString ||
      found->kind == ShloAttr::Kind::kSymbol) {
    return found->string;
  }
  b.Fail(UserError("attribute ", attribute, " must be a name"));
  return std::string(absent);
}

void StableHloOp::Understand(std::initializer_list<std::string_view> attributes) {
  for (std::string_view attribute : attributes) (void)Find(attribute);
}

AttrValue StableHloOp::SchemaValue(const AttrDef& def) {
  const ShloAttr* found = Find(def.name);
  const bool by_result = def.type == AttrType::kDType || (def.type == AttrType::kInts && def.name == "shape");
  if (found == nullptr && by_result && !results.empty()) {
    if (def.type == AttrType::kDType) return results[0].dtype;
    return ir::Ints(results[0].dims.begin(), results[0].dims.end());
  }
  if (found == nullptr) {
    const bool may_be_left_out =
        def.required && std::ranges::any_of(attributes_, [](const auto& a) { return a.second.attribute_struct; });
    if (may_be_left_out && def.type == AttrType::kInts) return ir::Ints();
    if (may_be_left_out && def.type == AttrType::kInt) return int64_t{0};
    return {};
  }
  switch (def.type) {
    case AttrType::kInt:
    case AttrType::kBool: return Int(def.name, 0);
    case AttrType::kInts: return Ints(def.name);
    case AttrType::kString: return Word(def.name);
    case AttrType::kDouble:
      if (found->kind == ShloAttr::Kind::kInt) return static_cast<double>(found->integer);
      if (found->kind == ShloAttr::Kind::kFloat) return found->number;
      break;
    case AttrType::kLiteral:
      if (found->kind != ShloAttr::Kind::kTensor) break;
      if (!found->splat || found->type->count() == 1) return found->tensor;
      if (found->type->count() <= kMaxListed && IsInteger(found->type->dtype)) {
        HostTensor all(found->type->dtype, found->type->dims);
        for (int64_t i = 0; i < all.count(); ++i) all.SetInt(i, found->tensor->value.GetInt(0));
        return AttrValue(Ref<const Literal>(MakeRef<const Literal>(std::move(all))));
      }
      break;
    case AttrType::kEnum: {
      const std::string word = Word(def.name);
      for (size_t i = 0; i < def.enumerators.size(); ++i) {
        if (absl::EqualsIgnoreCase(def.enumerators[i], word)) return static_cast<int64_t>(i);
      }
      b.Fail(UserError("attribute ", def.name, " is ", word, "; it must be one of ",
                       absl::AsciiStrToUpper(absl::StrJoin(def.enumerators, ", "))));
      return {};
    }
    default: break;
  }
  b.Fail(UserError("attribute ", def.name, " is not of a kind that ", name, " takes"));
  return {};
}

Attrs StableHloOp::SchemaAttrs(const OpDef& of) {
  Attrs attrs;
  for (size_t i = 0; i < of.attrs.size(); ++i) {
    AttrValue value = SchemaValue(of.attrs[i]);
    if (value.index() != 0) attrs.set(i, std::move(value));
  }
  return attrs;
}

Values StableHloOp::OperandsAndCaptures() const {
  Values all = operands;
  for (const ShloRegion& region : regions) {
    for (const Value& capture : region.captures) all.push_back(capture);
  }
  return all;
}

std::vector<Ref<const Function>> StableHloOp::Functions() const {
  std::vector<Ref<const Function>> functions;
  for (const ShloRegion& region : regions) functions.push_back(region.function);
  return functions;
}

}  // namespace weft::ir
