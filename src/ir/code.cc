// See code.h.
#include "src/ir/code.h"

#include <algorithm>
#include <cstring>

#include "src/ir/op_def.h"

namespace weft::ir {
namespace {

constexpr size_t kLongest = 10;  // of a number's bytes

char* Put(char* at, uint64_t x) {
  for (; x >= 0x80; x >>= 7) *at++ = static_cast<char>(x | 0x80);
  *at++ = static_cast<char>(x);
  return at;
}

// Small negative numbers stay small.
constexpr uint64_t ZigZag(int64_t x) { return (static_cast<uint64_t>(x) << 1) ^ static_cast<uint64_t>(x >> 63); }

}  // namespace

void CodeWriter::Number(uint64_t x) {
  char bytes[kLongest];
  out_.append(bytes, Put(bytes, x) - bytes);
}

void CodeWriter::Signed(int64_t x) { Number(ZigZag(x)); }

void CodeWriter::Fixed64(uint64_t x) {
  char bytes[8];
  std::memcpy(bytes, &x, 8);
  out_.append(bytes, 8);
}

void CodeWriter::Text(std::string_view text) {
  Number(text.size());
  out_.append(text);
}

void CodeWriter::Dims(std::span<const int64_t> dims) {
  Number(dims.size());
  constexpr size_t kMost = 16;  // at once: types and dimensions are most of what is written for a key
  while (!dims.empty()) {
    char bytes[kMost * kLongest];
    char* at = bytes;
    const auto now = dims.first(std::min(dims.size(), kMost));
    for (int64_t dim : now) at = Put(at, ZigZag(dim));
    out_.append(bytes, at - bytes);
    dims = dims.subspan(now.size());
  }
}

void CodeWriter::Type(const ir::Type& type) {
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

void CodeWriter::Attr(const AttrValue& value) {
  Number(value.index());
  switch (value.index()) {
    case 1: return Signed(std::get<int64_t>(value));
    case 2: return Fixed64(__builtin_bit_cast(uint64_t, std::get<double>(value)));
    case 3: return Number(static_cast<uint32_t>(std::get<DType>(value)));
    case 4: return Dims(std::get<Ints>(value));
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

namespace {

// Trailing absent values are the same as a shorter list.
size_t Given(const Attrs& attrs) {
  size_t given = attrs.size();
  while (given > 0 && !attrs.has(given - 1)) --given;
  return given;
}

}  // namespace

const Function* CodeWriter::Again(const ir::Node& node) const {
  if (!node.op().calls || node.extras() != nullptr || Given(node.attrs()) != 0) return nullptr;
  const Function* const callee = node.regions()[0].get();
  return numbers_.contains(callee) ? callee : nullptr;
}

void CodeWriter::Node(const ir::Node& node) {
  if (const Function* const callee = Again(node); callee != nullptr) {
    Number(0);  // no operation has that name
    return Number(numbers_.at(callee));
  }
  const size_t attrs = Given(node.attrs());
  Text(node.op().name);
  Number(attrs);
  for (size_t i = 0; i < attrs; ++i) Attr(node.attrs().at(i));
  Number(node.results().size());
  for (const ir::Type& type : node.results()) Type(type);
  Number(node.regions().size());
  for (const auto& region : node.regions()) Region(*region);
  const NodeExtras* extras = node.extras();
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

void CodeWriter::Shardings(const std::vector<Sharding>& shardings) {
  if (AllWhole(shardings)) return Number(0);
  Number(shardings.size());
  for (const Sharding& sharding : shardings) {
    Number(sharding.given());
    for (size_t d = 0; d < sharding.given(); ++d) {
      const Sharding::Dimension& dimension = sharding.dimensions[d];
      Number(2 * dimension.axes.size() + (dimension.open ? 1 : 0));
      for (const uint32_t axis : dimension.axes) Number(axis);
    }
  }
}

void CodeWriter::Participants(const ir::Participants& participants) {
  Number(participants.replicas);
  Number(participants.partitions);
  Number(participants.mesh.axes.size());
  for (const Mesh::Axis& axis : participants.mesh.axes) {
    Text(axis.name);
    Number(static_cast<uint64_t>(axis.size));
  }
  const bool in_order = participants.mesh.in_order();
  Number(in_order ? 0 : participants.mesh.slots.size());
  for (size_t i = 0; !in_order && i < participants.mesh.slots.size(); ++i) Number(participants.mesh.slots[i]);
  Shardings(participants.parameters);
  Shardings(participants.results);
}

// A number if the function has been written; else 0, how many are new, and those, callees before callers.
void CodeWriter::Region(const Function& function) {
  if (functions_ == Functions::kByAddress) return Fixed64(reinterpret_cast<uintptr_t>(&function));
  if (const auto known = numbers_.find(&function); known != numbers_.end()) return Number(1 + known->second);
  const auto is_new = [&](const Function& callee) { return !numbers_.contains(&callee); };
  const std::vector<const Function*> fresh = CalleesFirst(function, is_new);
  Number(0);
  Number(fresh.size());
  for (const Function* each : fresh) {
    Body(*each);
    numbers_.emplace(each, numbers_.size());
  }
}

void CodeWriter::Body(const Function& function) {
  HashMap<const ir::Node*, uint64_t> first;  // of a node's results, among all values
  uint64_t values = 0;
  const auto reference = [&](const Value& value) { Number(value ? first.at(value.node.get()) + value.result + 1 : 0); };
  Number(function.parameters().size());
  for (const ParameterInfo& info : function.parameter_infos()) {
    Number(static_cast<uint64_t>(info.role));
    Signed(info.donated_to);
    Number(info.word);
    Number(info.device);
  }
  Number(function.nodes().size());
  for (const ir::Node* node : function.nodes()) {
    Node(*node);
    Number(node->operands().size());
    for (const Value& operand : node->operands()) reference(operand);
    first.emplace(node, values);
    values += node->results().size();
  }
  Number(function.results().size());
  for (const Value& result : function.results()) reference(result);
}

}  // namespace weft::ir
