// Writes the canonical form. Runs on every cut, about 50 ns a node: plain appends, no text.
// Numbers are little-endian base-128; strings and lists carry their length, so no two programs share a spelling.
#include "src/compiler/canonical.h"

#include <cstring>

#include "src/ir/op_def.h"

namespace weft::compiler {
namespace {

class Writer {
 public:
  explicit Writer(std::string* out) : out_(*out) {}

  void Number(uint64_t x) {
    char bytes[10];
    size_t n = 0;
    while (x >= 0x80) {
      bytes[n++] = static_cast<char>(x | 0x80);
      x >>= 7;
    }
    bytes[n++] = static_cast<char>(x);
    out_.append(bytes, n);
  }
  // Small negative numbers stay small.
  void Signed(int64_t x) { Number((static_cast<uint64_t>(x) << 1) ^ static_cast<uint64_t>(x >> 63)); }
  void Fixed64(uint64_t x) {
    char bytes[8];
    std::memcpy(bytes, &x, 8);
    out_.append(bytes, 8);
  }
  void Text(std::string_view text) {
    Number(text.size());
    out_.append(text);
  }
  void Dims(std::span<const int64_t> dims) {
    Number(dims.size());
    for (int64_t dim : dims) Signed(dim);
  }
  void Type(const ir::Type& type) {
    Number(static_cast<uint64_t>(type.kind));
    if (type.kind == ir::Type::Kind::kTuple) {
      Number(type.elements->size());
      for (const ir::Type& element : *type.elements) Type(element);
      return;
    }
    if (!type.is_tensor()) return;
    Number(static_cast<uint32_t>(type.dtype));
    Dims(type.dims);
  }
  void Attr(const ir::AttrValue& value) {
    Number(value.index());
    switch (value.index()) {
      case 1: return Signed(std::get<int64_t>(value));
      case 2: return Fixed64(__builtin_bit_cast(uint64_t, std::get<double>(value)));
      case 3: return Number(static_cast<uint32_t>(std::get<DType>(value)));
      case 4: return Dims(std::get<ir::Ints>(value));
      case 5:
        Number(std::get<std::vector<double>>(value).size());
        for (double x : std::get<std::vector<double>>(value)) Fixed64(__builtin_bit_cast(uint64_t, x));
        return;
      case 6: return Text(std::get<std::string>(value));
      case 7: {
        const HostTensor& tensor = std::get<Ref<const Literal>>(value)->value;
        Number(static_cast<uint32_t>(tensor.dtype()));
        Dims(tensor.dims());
        return Text({reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size()});
      }
      default: return;  // absent
    }
  }
  // Everything of a node but its operands.
  void Node(const ir::Node& node) {
    Text(node.op().name);
    // Trailing absent values are the same as a shorter list.
    size_t attrs = node.attrs().size();
    while (attrs > 0 && !node.attrs().has(attrs - 1)) --attrs;
    Number(attrs);
    for (size_t i = 0; i < attrs; ++i) Attr(node.attrs().at(i));
    Number(node.results().size());
    for (const ir::Type& type : node.results()) Type(type);
    Number(node.regions().size());
    for (const auto& region : node.regions()) AppendCanonical(*region, &out_);
    const ir::NodeExtras* extras = node.extras();
    Number(extras != nullptr ? 1 : 0);
    if (extras == nullptr) return;
    Number(extras->unknown_attributes.size());
    for (const auto& [name, text] : extras->unknown_attributes) {
      Text(name);
      Text(text);
    }
    Text(extras->sharding);
    Number(extras->device);
  }

 private:
  std::string& out_;
};

}  // namespace

void AppendCanonical(const Trace& trace, std::string* out) {
  Writer w(out);
  w.Number(trace.arguments.size());
  for (const Trace::Argument& argument : trace.arguments) {
    w.Number(argument.words);
    w.Signed(argument.donated_to);
    w.Type(argument.type());
  }
  w.Number(trace.nodes.size());
  const Trace::Reference* operand = trace.operands.data();
  for (const ir::Node* node : trace.nodes) {
    w.Node(*node);
    const size_t n = node->operands().size();
    w.Number(n);
    for (size_t i = 0; i < n; ++i) w.Number(*operand++);
  }
  w.Number(trace.outputs.size());
  for (Trace::Reference output : trace.outputs) w.Number(output);
}

void AppendCanonical(const ir::Function& function, std::string* out) {
  Writer w(out);
  w.Text(function.name());
  const ir::Walk walk;
  uint32_t values = 0;
  w.Number(function.parameters().size());
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    const ir::ParameterInfo& info = function.parameter_infos()[i];
    w.Number(static_cast<uint64_t>(info.role));
    w.Signed(info.donated_to);
    w.Number(info.word);
    w.Number(info.device);
  }
  w.Number(function.nodes().size());
  auto reference = [&](const ir::Value& value) -> uint64_t {
    return value ? uint64_t{walk.At(*value.node)} + value.result + 1 : 0;
  };
  for (const ir::Node* node : function.nodes()) {
    w.Node(*node);
    w.Number(node->operands().size());
    for (const ir::Value& operand : node->operands()) w.Number(reference(operand));
    // A region within this one walks its own nodes, never these.
    walk.Mark(*node, values);
    values += static_cast<uint32_t>(node->results().size());
  }
  w.Number(function.results().size());
  for (const ir::Value& result : function.results()) w.Number(reference(result));
}

}  // namespace weft::compiler
