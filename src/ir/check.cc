// The checks every call of an operation passes, wherever it comes from.
#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ir/builder.h"
#include "src/ir/text.h"

namespace weft::ir {
namespace {

bool Fits(AttrType type, const AttrValue& value) {
  switch (type) {
    case AttrType::kInt:
    case AttrType::kBool:
    case AttrType::kEnum: return std::holds_alternative<int64_t>(value);
    case AttrType::kDouble: return std::holds_alternative<double>(value);
    case AttrType::kDType: return std::holds_alternative<DType>(value);
    case AttrType::kInts: return std::holds_alternative<Ints>(value);
    case AttrType::kDoubles: return std::holds_alternative<std::vector<double>>(value);
    case AttrType::kString: return std::holds_alternative<std::string>(value);
    case AttrType::kLiteral: return std::holds_alternative<Ref<const Literal>>(value);
  }
  return false;
}

absl::StatusOr<AttrValue> Default(const AttrDef& def) {
  const std::string_view text = def.default_text;
  int64_t integer = 0;
  double number = 0;
  switch (def.type) {
    case AttrType::kInt:
      if (absl::SimpleAtoi(text, &integer)) return AttrValue(integer);
      break;
    case AttrType::kBool: return AttrValue(int64_t{text == "true"});
    case AttrType::kEnum:
      for (size_t i = 0; i < def.enumerators.size(); ++i) {
        if (def.enumerators[i] == text) return AttrValue(static_cast<int64_t>(i));
      }
      break;
    case AttrType::kDouble:
      if (absl::SimpleAtod(text, &number)) return AttrValue(number);
      break;
    case AttrType::kDType:
      if (auto dtype = ParseDType(text)) return AttrValue(*dtype);
      break;
    case AttrType::kInts:
      if (text == "[]") return AttrValue(Ints());
      break;
    case AttrType::kString: return AttrValue(std::string(text));
    default: break;
  }
  return InternalError("the default \"", text, "\" of attribute ", def.name, " cannot be read");
}

absl::Status CheckAttrs(const OpDef& op, Attrs& attrs) {
  if (attrs.size() > op.attrs.size()) {
    return InternalError(attrs.size(), " attributes given, the schema has ", op.attrs.size());
  }
  WEFT_RETURN_IF_ERROR(FillDefaults(op, attrs));
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& def = op.attrs[i];
    if (!attrs.has(i)) {
      if (def.required) return UserError("attribute ", def.name, " is required");
      continue;
    }
    if (!Fits(def.type, attrs.at(i))) return UserError("attribute ", def.name, " has a value of the wrong type");
    if (def.type == AttrType::kEnum) {
      const int64_t value = attrs.Int(i);
      if (value < 0 || value >= static_cast<int64_t>(def.enumerators.size())) {
        return UserError("attribute ", def.name, " is ", value, "; it must be one of ",
                         absl::StrJoin(def.enumerators, ", "), " (0 to ", def.enumerators.size() - 1, ")");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRegions(const OpDef& op, RegionSpan regions) {
  const bool variadic = !op.regions.empty() && op.regions.back().variadic;
  const size_t least = op.regions.size() - (variadic ? 1 : 0);
  if (regions.size() < least || (regions.size() > least && !variadic)) {
    return UserError(regions.size(), " functions given, ", variadic ? "at least " : "", least, " expected");
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i] == nullptr) {
      return UserError("function ", op.regions[std::min(i, op.regions.size() - 1)].name, " is missing");
    }
    if (regions[i]->depth() >= kMaxRegionDepth) {
      return UserError("the function @", regions[i]->name(), " holds functions within functions ", regions[i]->depth(),
                       " deep; less than ", kMaxRegionDepth, " is supported");
    }
  }
  return absl::OkStatus();
}

std::string NamesOf(TypeSet set) {
  std::vector<std::string_view> names;
  if ((set & kF) != 0)
    names.push_back((set & kWhole) != 0 ? "f16, bf16, f32, f64" : "f8 of every kind, f16, bf16, f32, f64");
  if ((set & kSI) != 0) names.push_back((set & kWhole) != 0 ? "i8 to i64" : "i2 to i64");
  if ((set & kUI) != 0) names.push_back((set & kWhole) != 0 ? "u8 to u64" : "u2 to u64");
  if ((set & kB) != 0) names.push_back("bool");
  if ((set & kC) != 0) names.push_back("c64, c128");
  return absl::StrJoin(names, ", ");
}

absl::Status OperandsFit(const OpDef& op, std::span<const Value> operands) {
  const bool variadic = !op.operands.empty() && op.operands.back().variadic;
  const size_t most = op.operands.size();
  size_t least = 0;
  for (const OperandDef& def : op.operands) least += def.optional ? 0 : 1;
  if (operands.size() < least || (operands.size() > most && !variadic)) {
    return UserError(operands.size(), " operands given, ", variadic ? "at least " : "", variadic ? least : most,
                     " expected");
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const OperandDef& def = op.operands[std::min(i, most - 1)];
    const Value& operand = operands[i];
    if (!operand) {
      if (def.optional) continue;
      return UserError("operand ", def.name, " is missing");
    }
    const Type& type = operand.type();
    if (!type.is_tensor()) return UserError("operand ", def.name, " must be a tensor, not ", ToString(type));
    if (!Contains(def.types, type.dtype)) {
      return UserError("operand ", def.name, " has dtype ", NameOf(type.dtype), "; allowed are ", NamesOf(def.types));
    }
    if (def.group == 0) continue;
    for (size_t j = 0; j < i; ++j) {
      const OperandDef& other = op.operands[std::min(j, most - 1)];
      if (other.group != def.group || !operands[j]) continue;
      if (operands[j].dtype() != type.dtype) {
        if (&other == &def) {
          return UserError(def.name, " ", j - (most - 1), " and ", i - (most - 1), " have dtypes ",
                           NameOf(operands[j].dtype()), " and ", NameOf(type.dtype),
                           "; they must agree (convert one of them)");
        }
        return UserError("operands ", other.name, " and ", def.name, " have dtypes ", NameOf(operands[j].dtype()),
                         " and ", NameOf(type.dtype), "; they must agree (convert one of them)");
      }
      break;  // those in between agree with this one
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FillDefaults(const OpDef& op, Attrs& attrs) {
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& def = op.attrs[i];
    if (attrs.has(i) || def.required || def.default_text.empty()) continue;
    WEFT_ASSIGN_OR_RETURN(AttrValue value, Default(def));
    attrs.set(i, std::move(value));
  }
  return absl::OkStatus();
}

bool Contains(TypeSet set, DType dtype) {
  if (!IsKnown(static_cast<uint32_t>(dtype)) || (IsNarrow(dtype) && (set & kWhole) != 0)) return false;
  if (IsBool(dtype)) return (set & kB) != 0;
  if (IsSigned(dtype)) return (set & kSI) != 0;
  if (IsUnsigned(dtype)) return (set & kUI) != 0;
  if (IsComplex(dtype)) return (set & kC) != 0;
  return (set & kF) != 0;
}

std::string ShortType(const Type& type) {
  if (!type.is_tensor()) return ToString(type);
  return absl::StrCat(NameOf(type.dtype), DimsToString(type.dims));
}

absl::Status NameCall(const OpDef& op, std::span<const Value> operands, const absl::Status& status) {
  if (status.ok()) return status;
  std::string types;
  for (size_t i = 0; i < operands.size(); ++i) {
    absl::StrAppend(&types, i == 0 ? "" : ", ", operands[i] ? ShortType(operands[i].type()) : "none");
  }
  const absl::Status named(status.code(), absl::StrCat(op.c_name, "(", types, "): ", status.message()));
  return WithDetail(WithDetail(named, kPayloadOperation, op.c_name), kPayloadOperands, types);
}

absl::Status CheckOperands(const OpDef& op, std::span<const Value> operands) {
  const absl::Status status = OperandsFit(op, operands);
  return status.ok() ? status : NameCall(op, operands, status);
}

absl::Status CheckCall(const OpDef& op, std::span<const Value> operands, Attrs& attrs, Types* results,
                       RegionSpan regions) {
  absl::Status status = OperandsFit(op, operands);
  if (status.ok()) status = CheckAttrs(op, attrs);
  if (status.ok()) status = CheckRegions(op, regions);
  if (status.ok() && op.infer != nullptr) {
    absl::InlinedVector<const Type*, 4> types;
    for (const Value& operand : operands) types.push_back(operand ? &operand.type() : nullptr);
    while (types.size() < op.operands.size()) types.push_back(nullptr);
    status = op.infer(InferCall{op, types, attrs, regions}, results);
    for (const Type& type : *results) {
      if (!status.ok() || !type.is_tensor()) continue;
      if (const auto count = CheckedCount(type.dims); !count || *count > kMostElements) {
        status = UserError("the result ", DimsToString(type.dims), " has a negative or too large dimension");
      } else if (type.rank() > kMaxRank) {
        status = UserError("the result has rank ", type.rank(), "; at most ", kMaxRank, " is supported");
      }
    }
  }
  return status.ok() ? status : NameCall(op, operands, status);
}

Values Builder::EmitAll(const OpDef& op, Values operands, Attrs attrs, RegionSpan regions) {
  if (!ok()) return Values(std::max<size_t>(op.results.size(), 1));
  Types types;
  if (absl::Status status = CheckCall(op, operands, attrs, &types, regions); !status.ok()) {
    Fail(std::move(status));
    return Values(std::max<size_t>(op.results.size(), 1));
  }
  const size_t count = types.size();
  ++emitted_;
  std::unique_ptr<const Regions> owned;
  if (!regions.empty()) owned.reset(new Regions{{regions.begin(), regions.end()}});
  Ref<const Node> node =
      Node::Create(op, std::move(operands), std::move(attrs), std::move(types), std::move(owned), location_);
  Values values;
  for (uint32_t i = 0; i < count; ++i) values.push_back(Value{node, i});
  return values;
}

Value Builder::EmitKnown(const OpDef& op, Values operands, Attrs attrs, Type type) {
  if (!ok()) return {};
  ++emitted_;
  Types types;
  types.push_back(std::move(type));
  return Value{Node::Create(op, std::move(operands), std::move(attrs), std::move(types), nullptr, location_), 0};
}

Value Builder::Emit(const OpDef& op, Values operands, Attrs attrs, RegionSpan regions) {
  return EmitAll(op, std::move(operands), std::move(attrs), regions)[0];
}

}  // namespace weft::ir
