// Module to text. See text.h for the form.
#include <charconv>
#include <cmath>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ir/attr_text.h"
#include "src/ir/builder.h"
#include "src/ir/op_def.h"
#include "src/ir/text.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/narrow.h"

namespace weft::ir {
namespace {

// Beyond this many elements a literal is written as hexadecimal bytes: nobody reads it, and it is four times shorter.
constexpr int64_t kReadableElements = 64;

template <typename T>
void AppendFloat(std::string& out, T value) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view text(buffer, end - buffer);
  absl::StrAppend(&out, text);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

bool IsIdentifier(std::string_view name) {
  if (name.empty()) return false;
  for (char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  }
  return !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
}

// Tells whether the elements can be written as numbers that read back to the same bytes.
bool IsReadable(const HostTensor& value, int64_t count) {
  if (IsComplex(value.dtype())) return IsReadable(value.Part(0), count) && IsReadable(value.Part(1), count);
  for (int64_t i = 0; i < count; ++i) {
    if (IsFloat(value.dtype()) && std::isnan(value.GetDouble(i))) return false;
    if (IsBool(value.dtype()) && value.GetInt(i) > 1) return false;
    if (BitsOf(value.dtype()) < 8 &&
        Wrapped(value.dtype(), static_cast<uint64_t>(value.GetInt(i))) != value.GetInt(i)) {
      return false;
    }
  }
  return true;
}

void AppendElement(std::string& out, const HostTensor& value, int64_t i) {
  if (value.dtype() == DType::kF32) return AppendFloat(out, static_cast<float>(value.GetDouble(i)));
  if (IsFloat(value.dtype())) return AppendFloat(out, value.GetDouble(i));
  if (value.dtype() == DType::kU64) return absl::StrAppend(&out, static_cast<uint64_t>(value.GetInt(i)));
  if (IsBool(value.dtype())) return absl::StrAppend(&out, value.GetInt(i) != 0 ? "true" : "false");
  absl::StrAppend(&out, value.GetInt(i));
}

bool IsSplat(const HostTensor& value) {
  const size_t width = BytesOf(value.dtype());
  const auto bytes = value.bytes();
  return value.count() > 1 && std::memcmp(bytes.data(), bytes.data() + width, bytes.size() - width) == 0;
}

void AppendLiteral(std::string& out, const HostTensor& value) {
  absl::StrAppend(&out, "dense ", ToString(Type::Tensor(value.dtype(), value.dims())), " ");
  const bool splat = IsSplat(value);
  const int64_t count = splat ? 1 : value.count();
  if (splat) out += "splat ";
  if (count > kReadableElements || !IsReadable(value, count)) {
    const auto bytes = value.bytes().first(count * BytesOf(value.dtype()));
    absl::StrAppend(&out, "0x", absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    return;
  }
  HostTensor real, imaginary;
  if (IsComplex(value.dtype())) real = value.Part(0), imaginary = value.Part(1);
  out += '[';
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) out += ", ";
    if (!IsComplex(value.dtype())) {
      AppendElement(out, value, i);
      continue;
    }
    out += '(';
    AppendElement(out, real, i);
    out += ", ";
    AppendElement(out, imaginary, i);
    out += ')';
  }
  out += ']';
}

struct AttrPrinter {
  std::string& out;
  const AttrDef* def;  // null: beyond the schema

  void operator()(std::monostate) const {}
  void operator()(int64_t value) const {
    if (def != nullptr && def->type == AttrType::kBool && (value == 0 || value == 1)) {
      absl::StrAppend(&out, value == 1 ? "true" : "false");
    } else if (def != nullptr && def->type == AttrType::kEnum && value >= 0 &&
               static_cast<size_t>(value) < def->enumerators.size()) {
      absl::StrAppend(&out, def->enumerators[value]);
    } else {
      absl::StrAppend(&out, value);
    }
  }
  void operator()(double value) const { absl::StrAppend(&out, DoubleText(value)); }
  void operator()(DType value) const { absl::StrAppend(&out, StableHloNameOf(value)); }
  void operator()(const Ints& values) const {
    out += '[';
    for (size_t i = 0; i < values.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", values[i]);
    out += ']';
  }
  void operator()(const std::vector<double>& values) const {
    out += '[';
    for (size_t i = 0; i < values.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", DoubleText(values[i]));
    out += ']';
  }
  void operator()(const std::string& value) const { absl::StrAppend(&out, Quote(value)); }
  void operator()(const Ref<const Literal>& value) const {
    if (value == nullptr) {
      absl::StrAppend(&out, "null");
    } else {
      AppendLiteral(out, value->value);
    }
  }
};

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  // `name`: another than its own.
  void PrintFunction(const Function& function, int depth, std::string_view name = {});
  // Prints the functions that these, and the functions that they carry, call.
  void PrintCallees(std::span<const Ref<const Function>> functions);
  void PrintLine(const Function& function, const Node& node);
  std::string Take() { return std::move(out_); }
  std::string& out() { return out_; }

 private:
  using Numbers = HashMap<const Node*, uint32_t>;

  static Numbers Number(const Function& function);
  void PrintValue(const Value& value, const Numbers& numbers);
  void PrintNodeLine(const Node& node, const Numbers& numbers, int depth, bool bodies);
  void PrintParameter(const Value& parameter, const ParameterInfo& info, const Numbers& numbers);
  void PrintTail(const Node& node);
  void Indent(int depth) { out_.append(2 * depth, ' '); }

  const PrintOptions options_;
  std::string out_;
  HashMap<const Function*, std::string> symbols_;  // of functions that are called
};

Printer::Numbers Printer::Number(const Function& function) {
  Numbers numbers;
  numbers.reserve(function.nodes().size());
  for (const Node* node : function.nodes()) numbers.try_emplace(node, numbers.size());
  return numbers;
}

void Printer::PrintValue(const Value& value, const Numbers& numbers) {
  if (!value) {
    out_ += "none";
    return;
  }
  auto found = numbers.find(value.node.get());
  if (found == numbers.end()) {
    absl::StrAppend(&out_, "%outside");  // only in broken functions; the verifier says so
  } else {
    absl::StrAppend(&out_, "%", found->second);
  }
  if (value.node->results().size() != 1) absl::StrAppend(&out_, "#", value.result);
}

void Printer::PrintTail(const Node& node) {
  if (const NodeExtras* extras = node.extras()) {
    if (extras->device != 0) absl::StrAppend(&out_, " device(", extras->device, ")");
    if (!extras->sharding.empty()) absl::StrAppend(&out_, " sharding(", Quote(extras->sharding), ")");
    if (!extras->unknown_attributes.empty()) {
      out_ += " unknown(";
      for (size_t i = 0; i < extras->unknown_attributes.size(); ++i) {
        const auto& [name, text] = extras->unknown_attributes[i];
        absl::StrAppend(&out_, i == 0 ? "" : ", ", Quote(name), " = ", Quote(text));
      }
      out_ += ')';
    }
  }
  if (options_.locations && node.location().file != 0) {
    absl::StrAppend(&out_, " loc(", Quote(ToString(node.location())), ")");
  }
}

void Printer::PrintNodeLine(const Node& node, const Numbers& numbers, int depth, bool bodies) {
  const size_t count = node.results().size();
  auto found = numbers.find(&node);
  absl::StrAppend(&out_, "%", found == numbers.end() ? 0 : found->second);
  if (count != 1) absl::StrAppend(&out_, ":", count);
  absl::StrAppend(&out_, " = ", node.op().name, "(");
  for (size_t i = 0; i < node.operands().size(); ++i) {
    if (i > 0) out_ += ", ";
    PrintValue(node.operands()[i], numbers);
  }
  out_ += ')';
  bool any = false;
  for (size_t i = 0; i < node.attrs().size(); ++i) {
    if (!node.attrs().has(i)) continue;
    const AttrDef* def = i < node.op().attrs.size() ? &node.op().attrs[i] : nullptr;
    absl::StrAppend(&out_, any ? ", " : " {");
    if (def != nullptr) {
      absl::StrAppend(&out_, def->name, " = ");
    } else {
      absl::StrAppend(&out_, "attribute", i, " = ");
    }
    std::visit(AttrPrinter{out_, def}, node.attrs().at(i));
    any = true;
  }
  if (any) out_ += '}';
  if (node.op().calls) {
    const auto callee = symbols_.find(node.regions()[0].get());
    absl::StrAppend(&out_, " @", callee != symbols_.end() ? callee->second : node.regions()[0]->name());
  } else if (!node.regions().empty()) {
    out_ += " regions {\n";
    for (const Ref<const Function>& region : node.regions()) {
      if (bodies && depth < kMaxRegionDepth) {
        PrintFunction(*region, depth + 1);
      } else {
        Indent(depth + 1);
        absl::StrAppend(&out_, "func @", region->name(), " …\n");
      }
    }
    Indent(depth);
    out_ += '}';
  }
  out_ += " : ";
  if (count == 0) out_ += "()";
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&out_, i == 0 ? "" : ", ", ToString(node.type(i)));
  PrintTail(node);
}

void Printer::PrintParameter(const Value& parameter, const ParameterInfo& info, const Numbers& numbers) {
  PrintValue(parameter, numbers);
  absl::StrAppend(&out_, ": ", ToString(parameter.type()));
  const char* separator = " {";
  auto field = [&](std::string_view name, int64_t value) {
    absl::StrAppend(&out_, separator, name, " = ", value);
    separator = ", ";
  };
  if (info.role == ParameterInfo::Role::kWords) field("word", info.word);
  if (info.donated_to >= 0) field("donated_to", info.donated_to);
  if (info.device != 0) field("device", info.device);
  if (separator[0] == ',') out_ += '}';
  PrintTail(*parameter.node);
}

void Printer::PrintFunction(const Function& function, int depth, std::string_view name) {
  if (name.empty()) name = function.name();
  const Numbers numbers = Number(function);
  Indent(depth);
  absl::StrAppend(&out_, "func @", IsIdentifier(name) ? std::string(name) : Quote(name), "(");
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    if (i > 0) out_ += ", ";
    PrintParameter(function.parameters()[i], function.parameter_infos()[i], numbers);
  }
  out_ += ") -> (";
  for (size_t i = 0; i < function.results().size(); ++i) {
    const Value& result = function.results()[i];
    absl::StrAppend(&out_, i == 0 ? "" : ", ", result ? ToString(result.type()) : "none");
  }
  out_ += ") {\n";
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    Indent(depth + 1);
    PrintNodeLine(*node, numbers, depth + 1, true);
    out_ += '\n';
  }
  Indent(depth + 1);
  out_ += "return";
  for (size_t i = 0; i < function.results().size(); ++i) {
    out_ += i == 0 ? " " : ", ";
    PrintValue(function.results()[i], numbers);
  }
  out_ += '\n';
  Indent(depth);
  out_ += "}\n";
}

void Printer::PrintCallees(std::span<const Ref<const Function>> functions) {
  HashSet<const Function*> called, seen;
  std::vector<const Function*> ordered;
  HashMap<std::string, int> taken;  // names, and the last number behind them
  for (const Ref<const Function>& function : functions) {
    taken.emplace(function->name(), 0);
    for (const Function* each : CalleesFirst(*function)) {
      if (!seen.insert(each).second) continue;
      ordered.push_back(each);
      for (const Node* node : each->nodes()) {
        if (node->op().calls) called.insert(node->regions()[0].get());
      }
    }
  }
  for (const Function* each : ordered) {
    if (!called.contains(each)) continue;
    std::string name = IsIdentifier(each->name()) ? each->name() : "function";
    if (auto [used, fresh] = taken.emplace(name, 0); !fresh) {
      std::string numbered;
      do {
        numbered = absl::StrCat(name, ".", ++used->second);
      } while (!taken.emplace(numbered, 0).second);
      name = std::move(numbered);
    }
    symbols_.emplace(each, name);
    out_ += "private ";
    PrintFunction(*each, 0, name);
  }
}

void Printer::PrintLine(const Function& function, const Node& node) { PrintNodeLine(node, Number(function), 0, false); }

}  // namespace

std::string Quote(std::string_view text, std::string_view hex) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      absl::StrAppend(&out, hex, absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
    }
  }
  out += '"';
  return out;
}

std::string DoubleText(double value) {
  std::string out;
  if (std::isnan(value)) {
    return absl::StrCat("nan:0x", absl::Hex(__builtin_bit_cast(uint64_t, value), absl::kZeroPad16));
  }
  AppendFloat(out, value);
  return out;
}

std::string AttrText(const OpDef& op, size_t i, const AttrValue& value) {
  std::string text;
  const auto* const literal = std::get_if<Ref<const Literal>>(&value);
  if (literal != nullptr && *literal != nullptr) {
    const HostTensor& tensor = (*literal)->value;
    const bool one = tensor.count() == 1 || IsSplat(tensor);
    if (!one || IsComplex(tensor.dtype())) return ShortType(Type::Tensor(tensor.dtype(), tensor.dims()));
    AppendElement(text, tensor, 0);
    return text;
  }
  std::visit(AttrPrinter{text, i < op.attrs.size() ? &op.attrs[i] : nullptr}, value);
  return text;
}

namespace {

// One behind the other, for the module's line: "data,-; -; model".
std::string ShardingsText(const Mesh& mesh, const std::vector<Sharding>& shardings) {
  return absl::StrJoin(shardings, "; ", [&](std::string* out, const Sharding& sharding) {
    absl::StrAppend(out, ToString(mesh, sharding, 1));
  });
}

}  // namespace

std::string Print(const Module& module, const PrintOptions& options) {
  Printer printer(options);
  const char* separator = "module {";
  auto field = [&](std::string_view name, uint32_t value, uint32_t usual) {
    if (value == usual) return;
    absl::StrAppend(&printer.out(), separator, name, " = ", value);
    separator = ", ";
  };
  field("words", module.argument_words, 0);
  const Participants& who = module.participants;
  field("replicas", who.replicas, 1);
  field("partitions", who.partitions, 1);
  const auto text = [&](std::string_view name, bool given, const std::string& value) {
    if (!given) return;
    absl::StrAppend(&printer.out(), separator, name, " = ", Quote(value));
    separator = ", ";
  };
  text("mesh", !who.mesh.none(), ToString(who.mesh));
  text("parameters", !AllWhole(who.parameters), ShardingsText(who.mesh, who.parameters));
  text("results", !AllWhole(who.results), ShardingsText(who.mesh, who.results));
  if (separator[0] == ',') printer.out() += "}\n";
  printer.PrintCallees(module.functions);
  for (const Ref<const Function>& function : module.functions) printer.PrintFunction(*function, 0);
  return printer.Take();
}

std::string Print(const Function& function, const PrintOptions& options) {
  Printer printer(options);
  const Ref<const Function> functions[] = {Ref<const Function>::Share(&function)};
  printer.PrintCallees(functions);
  printer.PrintFunction(function, 0);
  return printer.Take();
}

std::string PrintNode(const Function& function, const Node& node) {
  Printer printer({});
  printer.PrintLine(function, node);
  return printer.Take();
}

}  // namespace weft::ir
