// The StableHLO printer.
#include "src/ir/stablehlo.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ir/location.h"
#include "src/ir/op_def.h"
#include "src/ir/text.h"

namespace weft::ir {
namespace {

// Literals with more elements are written as a string of hexadecimal bytes.
constexpr int64_t kListedElements = 64;

// MLIR reads decimals through double, so only values that are short in decimal are written so; the others as bits.
void AppendFloat(std::string& out, const HostTensor& value, int64_t i) {
  const double number = value.GetDouble(i);
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  if (std::isfinite(number) && error == std::errc() && end - buffer <= 8) {
    const std::string_view text(buffer, end - buffer);
    absl::StrAppend(&out, text, text.find('.') == std::string_view::npos ? ".0" : "");
    return;
  }
  const size_t width = BytesOf(value.dtype());
  out += "0x";
  for (size_t k = width; k > 0; --k) {
    absl::StrAppend(&out, absl::Hex(static_cast<uint8_t>(value.bytes()[i * width + k - 1]), absl::kZeroPad2));
  }
}

void AppendElement(std::string& out, const HostTensor& value, int64_t i) {
  if (IsBool(value.dtype())) return absl::StrAppend(&out, value.GetInt(i) != 0 ? "true" : "false");
  if (IsFloat(value.dtype())) return AppendFloat(out, value, i);
  if (IsComplex(value.dtype())) {
    const HostTensor one(PartOf(value.dtype()), {2},
                         value.bytes().subspan(i * BytesOf(value.dtype()), BytesOf(value.dtype())));
    out += '(';
    AppendFloat(out, one, 0);
    out += ", ";
    AppendFloat(out, one, 1);
    out += ')';
    return;
  }
  if (value.dtype() == DType::kU64) return absl::StrAppend(&out, static_cast<uint64_t>(value.GetInt(i)));
  absl::StrAppend(&out, value.GetInt(i));
}

// Row-major elements in the brackets of their shape.
void AppendNested(std::string& out, const HostTensor& value) {
  const Dims& dims = value.dims();
  for (int64_t i = 0; i < value.count(); ++i) {
    if (i > 0) out += ", ";
    int64_t block = 1;
    size_t opened = 0;
    for (size_t d = dims.size(); d > 0; --d) {
      block *= dims[d - 1];
      if (i % block == 0) ++opened;
    }
    out.append(opened, '[');
    AppendElement(out, value, i);
    block = 1;
    for (size_t d = dims.size(); d > 0; --d) {
      block *= dims[d - 1];
      if ((i + 1) % block == 0) out += ']';
    }
  }
}

}  // namespace

std::string ShloI64(int64_t value) { return absl::StrCat(value, " : i64"); }
std::string ShloBool(bool value) { return value ? "true" : "false"; }
std::string ShloList(std::span<const int64_t> values) { return absl::StrCat("[", absl::StrJoin(values, ", "), "]"); }
std::string ShloArray(std::span<const int64_t> values) {
  return values.empty() ? "array<i64>" : absl::StrCat("array<i64: ", absl::StrJoin(values, ", "), ">");
}
std::string ShloPairs(std::span<const int64_t> low, std::span<const int64_t> high) {
  std::string list;
  for (size_t i = 0; i < low.size(); ++i) absl::StrAppend(&list, i == 0 ? "" : ", ", "[", low[i], ", ", high[i], "]");
  return low.empty() ? "dense<> : tensor<0x2xi64>"
                     : absl::StrCat("dense<[", list, "]> : tensor<", low.size(), "x2xi64>");
}
std::string ShloText(std::string_view text) { return Quote(text, "\\"); }
std::string ShloEnum(std::string_view kind, std::string_view value) {
  return absl::StrCat("#stablehlo<", kind, " ", value, ">");
}
std::string ShloDense(const HostTensor& value) {
  std::string out = "dense<";
  if (value.count() > kListedElements && !IsBool(value.dtype())) {
    const auto bytes = value.bytes();
    absl::StrAppend(&out, "\"0x", absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
                    "\"");
  } else {
    AppendNested(out, value);
  }
  return absl::StrCat(out, "> : ", ToString(Type::Tensor(value.dtype(), value.dims())));
}

std::string StableHloWriter::Name(const Value& value) const {
  auto found = names_.find(value.node.get());
  if (found == names_.end()) return "%unknown";
  return value.node->results().size() == 1 ? found->second : absl::StrCat(found->second, "#", value.result);
}

void StableHloWriter::PrintExtras(const NodeExtras* extras, const char** separator) {
  if (extras == nullptr) return;
  const auto print = [&](std::string_view key, std::string_view text) {
    absl::StrAppend(&out_, *separator, key, " = ", text);
    *separator = ", ";
  };
  const bool shardings = options_.shardings && participants_->mesh.none();
  if (shardings && !extras->sharding.empty()) print("mhlo.sharding", ShloText(extras->sharding));
  for (const auto& [key, text] : extras->unknown_attributes) {
    if (shardings || !key.starts_with("sdy.")) print(key, text);
  }
}

// `left = "stablehlo.name"(operands) ({regions}) {attributes} : (operand types) -> result types`
void StableHloWriter::Line(std::string_view left, std::string_view name, std::span<const std::string> operands,
                           std::span<const Type> results, const ShloAttrs& attrs, std::string_view regions) {
  out_.append(2 * depth_, ' ');
  if (!results.empty()) absl::StrAppend(&out_, left, " = ");
  absl::StrAppend(&out_, "\"", name.find('.') == std::string_view::npos ? "stablehlo." : "", name, "\"(",
                  absl::StrJoin(operands, ", "), ")");
  if (!regions.empty()) absl::StrAppend(&out_, " (", regions, ")");
  const char* separator = " {";
  for (const auto& [key, text] : attrs) {
    absl::StrAppend(&out_, separator, key, " = ", text);
    separator = ", ";
  }
  if (node_ != nullptr) PrintExtras(node_->extras(), &separator);
  if (separator[0] == ',') out_ += '}';
  out_ += " : (";
  for (size_t i = 0; i < operands.size(); ++i) {
    auto type = types_.find(operands[i]);
    if (type == types_.end())
      return Fail(InternalError("StableHLO of ", name, ": operand ", operands[i], " is unknown"));
    absl::StrAppend(&out_, i == 0 ? "" : ", ", ToString(type->second));
  }
  out_ += ") -> ";
  if (results.size() != 1) out_ += '(';
  for (size_t i = 0; i < results.size(); ++i) absl::StrAppend(&out_, i == 0 ? "" : ", ", ToString(results[i]));
  if (results.size() != 1) out_ += ')';
  if (options_.locations && node_ != nullptr && node_->location().file != 0) {
    const Position position = PositionOf(node_->location());
    absl::StrAppend(&out_, " loc(", ShloText(position.file), ":", position.line, ":1)");
  }
  out_ += '\n';
}

void StableHloWriter::EmitOn(std::string_view name, std::span<const std::string> operands, ShloAttrs attrs,
                             std::string_view regions) {
  const std::string result = Fresh();
  const auto types = node_->results();
  Line(types.size() > 1 ? absl::StrCat(result, ":", types.size()) : result, name, operands, types, attrs, regions);
  names_[node_] = result;
  for (size_t i = 0; i < types.size(); ++i) {
    types_[types.size() == 1 ? result : absl::StrCat(result, "#", i)] = types[i];
  }
}

void StableHloWriter::Emit(std::string_view name, ShloAttrs attrs, std::string_view regions) {
  std::vector<std::string> operands;
  for (const Value& operand : node_->operands()) {
    if (operand) operands.push_back(Name(operand));
  }
  EmitOn(name, operands, std::move(attrs), regions);
}

std::string StableHloWriter::Op(std::string_view name, std::span<const std::string> operands, const Type& result,
                                ShloAttrs attrs, std::string_view regions) {
  const std::string left = Fresh();
  Line(left, name, operands, {&result, 1}, attrs, regions);
  types_[left] = result;
  return left;
}

std::string StableHloWriter::Constant(const HostTensor& value) {
  if (!IsKnown(static_cast<uint32_t>(value.dtype())))
    Fail(InternalError("StableHLO of a literal of type ", NameOf(value.dtype())));
  return Op("constant", {}, Type::Tensor(value.dtype(), value.dims()), {{"value", ShloDense(value)}});
}

std::pair<std::string, std::string> StableHloWriter::PrecisionConfig(std::string_view own) const {
  const std::string each = ShloEnum("precision", own.empty() ? options_.precision : own);
  return {"precision_config", absl::StrCat("[", each, ", ", each, "]")};
}

void StableHloWriter::Alias(std::string name) { names_[node_] = std::move(name); }

std::string StableHloWriter::Reducer(std::string_view operation, DType dtype) {
  const std::string type = ToString(Type::Scalar(dtype));
  const std::string x = Fresh(), y = Fresh(), z = Fresh();
  return absl::StrCat("{^bb0(", x, ": ", type, ", ", y, ": ", type, "): ", z, " = \"stablehlo.", operation, "\"(", x,
                      ", ", y, ") : (", type, ", ", type, ") -> ", type, " \"stablehlo.return\"(", z, ") : (", type,
                      ") -> ()}");
}

std::string StableHloWriter::Comparer(std::string_view direction, DType dtype) {
  const std::string type = ToString(Type::Scalar(dtype));
  const std::string x = Fresh(), y = Fresh(), z = Fresh();
  return absl::StrCat("{^bb0(", x, ": ", type, ", ", y, ": ", type, "): ", z, " = \"stablehlo.compare\"(", x, ", ", y,
                      ") {comparison_direction = ", ShloEnum("comparison_direction", direction), "} : (", type, ", ",
                      type, ") -> tensor<i1> \"stablehlo.return\"(", z, ") : (tensor<i1>) -> ()}");
}

std::string StableHloWriter::Symbol(const Function& function) {
  auto [found, first] = symbols_.try_emplace(&function);
  if (first) {
    std::string name = function.name();
    for (int i = 1; !taken_.insert(name).second; ++i) name = absl::StrCat(function.name(), "_", i);
    found->second = ShloText(name);
    called_.push_back(&function);
  }
  return absl::StrCat("@", found->second);
}

std::string StableHloWriter::Body(const Function& function, std::span<const Value> captures, std::string_view returns) {
  if (depth_ > kMaxRegionDepth) {
    Fail(InternalError("StableHLO: regions nest deeper than ", kMaxRegionDepth));
    return "{}";
  }
  // A region has its own names; numbers go on, because MLIR does not let inner names repeat outer ones.
  std::vector<std::string> outside;
  for (const Value& capture : captures) outside.push_back(Name(capture));
  std::string outer_text = std::exchange(out_, {});
  Names outer_names = std::exchange(names_, {});
  const Node* outer_node = std::exchange(node_, nullptr);
  out_ = "{\n";
  ++depth_;
  out_.append(2 * depth_, ' ');
  out_ += "^bb0(";
  const size_t arguments = function.parameters().size() - captures.size();
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    const Value& parameter = function.parameters()[i];
    std::string& name = names_[parameter.node.get()];
    if (i >= arguments) {
      name = outside[i - arguments];
      continue;
    }
    name = Fresh();
    types_[name] = parameter.type();
    absl::StrAppend(&out_, i == 0 ? "" : ", ", name, ": ", ToString(parameter.type()));
  }
  out_ += "):\n";
  PrintNodes(function);
  std::vector<std::string> results;
  for (const Value& result : function.results()) results.push_back(Name(result));
  Line("", returns, results, {}, {}, {});
  --depth_;
  out_.append(2 * depth_, ' ');
  out_ += '}';
  node_ = outer_node;
  names_ = std::move(outer_names);
  return std::exchange(out_, std::move(outer_text));
}

// The name and the schema's attributes. Attributes that StableHLO says by the result type (a shape, a dtype) are left
// out.
void StableHloWriter::PrintDefault(const Node& node) {
  const OpDef& op = node.op();
  if (op.kind != Kind::kPrimitive || op.name.starts_with("weft.")) {
    return Fail(InternalError("StableHLO has no ", op.name, ": it must be expanded first"));
  }
  ShloAttrs attrs;
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& def = op.attrs[i];
    if (!node.attrs().has(i)) continue;
    std::string text;
    switch (def.type) {
      case AttrType::kInt: text = ShloI64(node.attrs().Int(i)); break;
      case AttrType::kBool: text = ShloBool(node.attrs().Bool(i)); break;
      case AttrType::kInts:
        if (def.name == "shape") continue;
        text = ShloArray(node.attrs().IntList(i));
        break;
      case AttrType::kString: text = ShloText(node.attrs().String(i)); break;
      case AttrType::kLiteral: text = ShloDense(node.attrs().Tensor(i)); break;
      case AttrType::kDType: continue;
      default: return Fail(InternalError("StableHLO of ", op.name, " needs a spelling for attribute ", def.name));
    }
    attrs.emplace_back(def.name, std::move(text));
  }
  std::vector<std::string> bodies;
  for (const Ref<const Function>& region : node.regions()) bodies.push_back(Body(*region));
  Emit(op.name, std::move(attrs), absl::StrJoin(bodies, ", "));
}

void StableHloWriter::PrintNode(const Node& node) {
  node_ = &node;
  if (node.op().stablehlo != nullptr) {
    node.op().stablehlo(node, *this);
  } else {
    PrintDefault(node);
  }
  if (status_.ok() && !names_.contains(&node))
    Fail(InternalError("the StableHLO spelling of ", node.op().name, " gives no result"));
  node_ = nullptr;
}

void StableHloWriter::PrintNodes(const Function& function) {
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    if (!status_.ok()) return;
    PrintNode(*node);
  }
}

std::string ShloSharding(const Mesh& mesh, const Sharding& sharding, size_t rank) {
  std::vector<std::string> dimensions;
  for (size_t d = 0; d < rank; ++d) {
    const Sharding::Dimension dimension =
        d < sharding.dimensions.size() ? sharding.dimensions[d] : Sharding::Dimension();
    std::vector<std::string> words;
    for (const uint32_t axis : dimension.axes) words.push_back(ShloText(mesh.axes[axis].name));
    if (dimension.open) words.emplace_back("?");
    dimensions.push_back(absl::StrCat("{", absl::StrJoin(words, ", "), "}"));
  }
  return absl::StrCat("#sdy.sharding<@mesh, [", absl::StrJoin(dimensions, ", "), "]>");
}

void StableHloWriter::PrintSharding(const std::vector<Sharding>& shardings, size_t i, const Type& type,
                                    const char** separator) {
  const Mesh& mesh = participants_->mesh;
  if (mesh.none()) return;
  const Sharding sharding = i < shardings.size() ? shardings[i] : Sharding();
  absl::StrAppend(&out_, *separator, "sdy.sharding = ", ShloSharding(mesh, sharding, type.rank()));
  *separator = ", ";
}

void StableHloWriter::FindChannels(const Module& module) {
  for (const Ref<const Function>& function : module.functions) {
    for (const Function* each : CalleesFirst(*function)) {
      for (const Node* node : each->nodes()) {
        for (size_t i = 0; i < node->op().attrs.size(); ++i) {
          if (node->op().attrs[i].name != "handle" || !node->attrs().has(i)) continue;
          channels_ = std::max(channels_, node->attrs().Int(i));
        }
      }
    }
  }
}

void StableHloWriter::PrintFunction(const Function& function, bool entry) {
  names_.clear();
  types_.clear();
  next_ = 0;
  absl::StrAppend(&out_, "  func.func ", entry ? "public @main" : absl::StrCat("private ", Symbol(function)), "(");
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    const Value& parameter = function.parameters()[i];
    const std::string name = Fresh();
    names_[parameter.node.get()] = name;
    types_[name] = parameter.type();
    absl::StrAppend(&out_, i == 0 ? "" : ", ", name, ": ", ToString(parameter.type()));
    const int32_t donated = function.parameter_infos()[i].donated_to;
    const char* separator = " {";
    if (donated >= 0) {
      absl::StrAppend(&out_, separator, "tf.aliasing_output = ", donated, " : i32");
      separator = ", ";
    }
    if (entry) PrintSharding(participants_->parameters, i, parameter.type(), &separator);
    PrintExtras(parameter.node->extras(), &separator);
    if (separator[0] == ',') out_ += '}';
  }
  std::vector<std::string> types;
  for (size_t i = 0; i < function.results().size(); ++i) {
    const Type& type = function.results()[i].type();
    types.push_back(ToString(type));
    if (!entry || participants_->mesh.none()) continue;
    const char* separator = " {";
    std::swap(out_, types.back());
    PrintSharding(participants_->results, i, type, &separator);
    out_ += '}';
    std::swap(out_, types.back());
  }
  absl::StrAppend(&out_, ") -> (", absl::StrJoin(types, ", "), ") {\n");
  depth_ = 2;
  PrintNodes(function);
  std::vector<std::string> results;
  for (const Value& result : function.results()) results.push_back(Name(result));
  Line("", "func.return", results, {}, {}, {});
  out_ += "  }\n";
}

absl::StatusOr<std::string> ToStableHlo(const Module& module, const StableHloOptions& options) {
  StableHloWriter writer(options);
  const Participants& who = module.participants;
  writer.participants_ = &who;
  if (!who.alone()) writer.FindChannels(module);
  absl::StrAppend(&writer.out_, "module @weft attributes {mhlo.num_partitions = ", who.partitions,
                  " : i32, mhlo.num_replicas = ", who.replicas, " : i32} {\n");
  if (!who.mesh.none()) {
    const std::string axes = absl::StrJoin(who.mesh.axes, ", ", [](std::string* out, const Mesh::Axis& axis) {
      absl::StrAppend(out, "\"", axis.name, "\"=", axis.size);
    });
    const std::string slots =
        who.mesh.in_order() ? "" : absl::StrCat(", device_ids=[", absl::StrJoin(who.mesh.slots, ", "), "]");
    absl::StrAppend(&writer.out_, "  sdy.mesh @mesh = <[", axes, "]", slots, ">\n");
  }
  for (const Ref<const Function>& function : std::span(module.functions).subspan(1)) (void)writer.Symbol(*function);
  writer.PrintFunction(module.main(), true);
  // Functions of the module, and those that are called, which may call others.
  for (size_t i = 0; i < writer.called_.size() && writer.status_.ok(); ++i) {
    writer.PrintFunction(*writer.called_[i], false);
  }
  WEFT_RETURN_IF_ERROR(writer.status_);
  writer.out_ += "}\n";
  return std::move(writer.out_);
}

}  // namespace weft::ir
