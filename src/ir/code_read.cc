// See code_read.h.
#include "src/ir/code_read.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "src/ir/op_def.h"

namespace weft::ir {

uint64_t CodeReader::Number() {
  uint64_t x = 0;
  for (int shift = 0; ok_ && shift < 64; shift += 7) {
    if (code_.empty()) break;
    const auto byte = static_cast<unsigned char>(code_[0]);
    code_.remove_prefix(1);
    x |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return x;
  }
  ok_ = false;
  return 0;
}

int64_t CodeReader::Signed() {
  const uint64_t x = Number();
  return static_cast<int64_t>(x >> 1) ^ -static_cast<int64_t>(x & 1);
}

size_t CodeReader::Count(uint64_t most) {
  const uint64_t count = Number();
  if (count > most) ok_ = false;
  return ok_ ? static_cast<size_t>(count) : 0;
}

uint64_t CodeReader::Fixed64() {
  uint64_t x = 0;
  if (code_.size() < sizeof x) ok_ = false;
  if (!ok_) return 0;
  std::memcpy(&x, code_.data(), sizeof x);
  code_.remove_prefix(sizeof x);
  return x;
}

std::string_view CodeReader::Text() {
  const size_t length = Length();
  if (!ok_ || length > code_.size()) {
    ok_ = false;
    return {};
  }
  const std::string_view text = code_.substr(0, length);
  code_.remove_prefix(length);
  return text;
}

Dims CodeReader::ReadDims() {
  Dims dims(Length());
  for (int64_t& dim : dims) dim = Signed();
  return dims;
}

ir::Type CodeReader::Type() {
  switch (Number()) {
    case static_cast<uint64_t>(ir::Type::Kind::kTensor): break;
    case static_cast<uint64_t>(ir::Type::Kind::kToken): return ir::Type::Token();
    case static_cast<uint64_t>(ir::Type::Kind::kTuple): {
      const Deeper deeper(*this);
      std::vector<ir::Type> elements;
      const size_t count = Length();
      while (ok_ && elements.size() < count) elements.push_back(Type());
      return ir::Type::Tuple(std::move(elements));
    }
    default: ok_ = false;
  }
  const auto dtype = static_cast<uint32_t>(Number());
  Dims dims = ReadDims();
  const std::optional<int64_t> count = CheckedCount(dims);
  if (!IsKnown(dtype) || !count.has_value() || *count > kMostElements) ok_ = false;
  return ok_ ? ir::Type::Tensor(static_cast<DType>(dtype), std::move(dims)) : ir::Type();
}

AttrValue CodeReader::Attr() {
  switch (Number()) {
    case 0: return {};
    case 1: return Signed();
    case 2: return __builtin_bit_cast(double, Fixed64());
    case 3: return static_cast<DType>(Number());
    case 4: {
      const Dims dims = ReadDims();
      return Ints(dims.begin(), dims.end());
    }
    case 5: {
      std::vector<double> doubles(Length());
      for (double& x : doubles) x = __builtin_bit_cast(double, Fixed64());
      return doubles;
    }
    case 6: return std::string(Text());
    case 7: {
      const auto dtype = static_cast<uint32_t>(Number());
      Dims dims = ReadDims();
      const std::string_view bytes = Text();
      const std::optional<int64_t> count = CheckedCount(dims);
      if (!ok_ || !IsKnown(dtype) || !count.has_value()) break;
      // Before there is memory for what it says it has.
      const auto width = static_cast<size_t>(BytesOf(static_cast<DType>(dtype)));
      if (width == 0 || bytes.size() % width != 0 || bytes.size() / width != static_cast<uint64_t>(*count)) break;
      HostTensor value(static_cast<DType>(dtype), std::move(dims), std::as_bytes(std::span(bytes)));
      return Ref<const Literal>(MakeRef<Literal>(std::move(value)));
    }
    default: break;
  }
  ok_ = false;
  return {};
}

CodeReader::Header CodeReader::Node() {
  Header header;
  const std::string_view name = Text();
  if (!ok_) return header;
  if (name.empty()) {
    const uint64_t number = Number();
    header.op = lookup_("call");
    if (!ok_ || number >= functions_.size() || header.op == nullptr) {
      ok_ = false;
      return header;
    }
    const Ref<const Function>& callee = functions_[number];
    for (const Value& result : callee->results()) header.results.push_back(result.type());
    header.regions = {callee};
    header.again = true;
    return header;
  }
  header.op = lookup_(name);
  if (header.op == nullptr) ok_ = false;
  const size_t attrs = Length();
  for (size_t i = 0; ok_ && i < attrs; ++i) header.attrs.set(i, Attr());
  const size_t results = Length();
  for (size_t i = 0; ok_ && i < results; ++i) header.results.push_back(Type());
  const size_t regions = Length();
  for (size_t i = 0; ok_ && i < regions; ++i) header.regions.push_back(Region());
  if (Count(1) == 0) return header;
  auto extras = std::make_unique<NodeExtras>();
  const size_t unknown = Length();
  for (size_t i = 0; ok_ && i < unknown; ++i) {
    std::string first(Text());
    extras->unknown_attributes.emplace_back(std::move(first), Text());
  }
  extras->sharding = Text();
  extras->device = static_cast<uint16_t>(Number());
  header.extras = std::move(extras);
  return header;
}

Ref<const ir::Node> CodeReader::Make(Header header, Values operands) {
  std::unique_ptr<const Regions> regions;
  if (!header.regions.empty()) regions = std::make_unique<const Regions>(Regions{std::move(header.regions)});
  return ir::Node::Create(*header.op, std::move(operands), std::move(header.attrs), std::move(header.results),
                          std::move(regions), {}, std::move(header.extras));
}

Ref<const Function> CodeReader::Region() {
  const uint64_t number = Number();
  if (number == 0) {
    const Deeper deeper(*this);
    const size_t fresh = Length();
    for (size_t i = 0; ok_ && i < fresh; ++i) functions_.push_back(Body());
    if (fresh == 0) ok_ = false;
    return ok_ ? functions_.back() : nullptr;
  }
  if (number > functions_.size()) ok_ = false;
  return ok_ ? functions_[number - 1] : nullptr;
}

std::vector<Sharding> CodeReader::Shardings() {
  std::vector<Sharding> shardings(Length());
  for (Sharding& sharding : shardings) {
    sharding.dimensions.resize(Length());
    for (Sharding::Dimension& dimension : sharding.dimensions) {
      const uint64_t said = Number();
      dimension.open = (said & 1) != 0;
      for (uint64_t i = 0; ok_ && i < said / 2; ++i) dimension.axes.push_back(static_cast<uint32_t>(Number()));
    }
  }
  return shardings;
}

ir::Participants CodeReader::Participants() {
  ir::Participants participants;
  participants.replicas = static_cast<uint32_t>(Count(UINT32_MAX));
  participants.partitions = static_cast<uint32_t>(Count(UINT32_MAX));
  participants.mesh.axes.resize(Length());
  for (Mesh::Axis& axis : participants.mesh.axes) {
    axis.name = Text();
    axis.size = static_cast<int64_t>(Number());
  }
  participants.mesh.slots.resize(Length());
  for (uint32_t& slot : participants.mesh.slots) slot = static_cast<uint32_t>(Count(UINT32_MAX));
  participants.parameters = Shardings();
  participants.results = Shardings();
  return participants;
}

Ref<const Function> CodeReader::Body() {
  std::vector<ParameterInfo> infos(Length());
  for (ParameterInfo& info : infos) {
    info.role = static_cast<ParameterInfo::Role>(Count(1));
    info.donated_to = static_cast<int32_t>(Signed());
    info.word = static_cast<uint32_t>(Number());
    info.device = static_cast<uint16_t>(Number());
  }
  std::vector<Value> values, parameters, results;
  const auto reference = [&]() -> Value {
    const size_t at = Count(values.size());
    return at > 0 ? values[at - 1] : Value();
  };
  const size_t nodes = Length();
  for (size_t n = 0; ok_ && n < nodes; ++n) {
    Header header = Node();
    Values operands(Length());
    for (Value& operand : operands) operand = reference();
    if (!ok_) break;
    const Ref<const ir::Node> node = Make(std::move(header), std::move(operands));
    for (uint32_t i = 0; i < node->results().size(); ++i) values.push_back({node, i});
    if (parameters.size() == infos.size()) continue;
    if (node->results().empty()) Fail();
    if (ok_) parameters.push_back(values.back());
  }
  results.resize(Length());
  for (Value& result : results) {
    result = reference();
    if (!result) Fail();
  }
  if (!ok_ || parameters.size() != infos.size()) {
    ok_ = false;
    return nullptr;
  }
  return Intern(Function::Create("function", std::move(parameters), std::move(results), std::move(infos)));
}

}  // namespace weft::ir
