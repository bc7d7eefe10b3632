// See join_pads.h.
#include "src/passes/join_pads.h"

#include <algorithm>
#include <optional>

#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/literals.h"

namespace weft::passes {
namespace {

using ir::Builder;
using ir::Value;

// Concatenations of more grow no further: a chain of n would make n of them, of n operands.
constexpr size_t kMostParts = 512;

// The parts that are not zeros along one dimension, in order.
struct Part {
  Value x;
  int64_t begin;
};
struct Row {
  size_t dimension = 0;
  int64_t size = 0;
  std::vector<Part> parts;

  int64_t EndOf(const Part& part) const { return part.begin + part.x.dims()[dimension]; }
};

bool IsConcatenation(const Value& value, size_t dimension) {
  const ir::Node& node = *value.node;
  return &node.op() == &ops::kOp_concatenate && node.extras() == nullptr &&
         ops::ConcatenateAttrs{node.attrs()}.dimension() == static_cast<int64_t>(dimension);
}

// x from `begin` on; what a concatenation joins is known by its parts, and their zeros are room.
void AddParts(const Value& x, int64_t begin, Row* row) {
  if (!IsConcatenation(x, row->dimension)) {
    row->parts.push_back({x, begin});
    return;
  }
  for (const Value& part : x.node->operands()) {
    if (!ops::IsUniform(part, 0.0)) row->parts.push_back({part, begin});
    begin += part.dims()[row->dimension];
  }
}

// Zeros around along one dimension, or between along one that is joined already.
std::optional<Row> RowOf(const Value& value) {
  const ir::Node& node = *value.node;
  if (node.extras() != nullptr) return std::nullopt;
  std::optional<Row> row;
  if (&node.op() == &ops::kOp_concatenate) {
    const auto d = static_cast<size_t>(ops::ConcatenateAttrs{node.attrs()}.dimension());
    if (d >= value.dims().size()) return std::nullopt;  // counted from the end
    row = Row{d, value.dims()[d], {}};
    AddParts(value, 0, &*row);
    return row->parts.size() < node.operands().size() ? row : std::nullopt;
  }
  if (&node.op() != &ops::kOp_pad || !ops::IsUniform(node.operands()[1], 0.0)) return std::nullopt;
  const ops::PadAttrs a{node.attrs()};
  for (size_t d = 0; d < value.dims().size(); ++d) {
    const int64_t low = a.edge_padding_low()[d], high = a.edge_padding_high()[d];
    if (low < 0 || high < 0 || a.interior_padding()[d] != 0) return std::nullopt;
    if (low == 0 && high == 0) continue;
    if (row) return std::nullopt;
    row = Row{d, value.dims()[d], {}};
    AddParts(node.operands()[0], low, &*row);
  }
  return row;
}

// The parts of both, or nothing where two overlap.
std::optional<Row> Merged(const Row& x, const Row& y) {
  if (x.dimension != y.dimension) return std::nullopt;
  Row both{x.dimension, x.size, {}};
  std::ranges::merge(x.parts, y.parts, std::back_inserter(both.parts), {}, &Part::begin, &Part::begin);
  for (size_t i = 1; i < both.parts.size(); ++i) {
    if (both.EndOf(both.parts[i - 1]) > both.parts[i].begin) return std::nullopt;
  }
  return both;
}

Value PlusZero(Builder& b, const Value& x) {
  if (!IsFloat(x.dtype()) && !IsComplex(x.dtype())) return x;
  const ir::Node& node = *x.node;
  const bool has = &node.op() == &ops::kOp_add && node.extras() == nullptr && ops::IsUniform(node.operands()[1], 0.0);
  return has ? x : ops::Add(b, x, ops::FullLike(b, x, 0));
}

Value Made(Builder& b, const Row& row) {
  if (row.parts.empty()) return {};
  const size_t d = row.dimension;
  ir::Values joined;
  int64_t end = row.parts.front().begin;
  for (const Part& part : row.parts) {
    Dims gap = part.x.dims();
    gap[d] = part.begin - end;
    if (gap[d] > 0) joined.push_back(ops::Full(b, part.x.dtype(), gap, 0));
    joined.push_back(PlusZero(b, part.x));
    end = row.EndOf(part);
  }
  if (!b.ok() || joined.size() > kMostParts) return {};
  const Value whole = ops::Call(b, ops::kOp_concatenate, std::move(joined), {static_cast<int64_t>(d)});
  if (!b.ok()) return {};
  ir::Ints low(whole.dims().size(), 0), high = low;
  low[d] = row.parts.front().begin;
  high[d] = row.size - end;
  return ops::Pad(b, whole, 0, std::move(low), std::move(high), ir::Ints(whole.dims().size(), 0));
}

// A dimension of m s places as two, [m, s].
struct Turns {
  size_t dimension = 0;
  int64_t stride = 0;
};
Dims Split(const Dims& dims, const Turns& turns) {
  Dims split = dims;
  split[turns.dimension] /= turns.stride;
  split.insert(split.begin() + static_cast<int64_t>(turns.dimension) + 1, turns.stride);
  return split;
}

// Recognises a value that is zeros except for every s-th slice along one dimension.
std::optional<Turns> TurnsOf(const Value& value) {
  const ir::Node& node = *value.node;
  if (&node.op() != &ops::kOp_pad || node.extras() != nullptr || !ops::IsUniform(node.operands()[1], 0.0))
    return std::nullopt;
  const ops::PadAttrs a{node.attrs()};
  std::optional<Turns> turns;
  for (size_t d = 0; d < value.dims().size(); ++d) {
    const int64_t low = a.edge_padding_low()[d], high = a.edge_padding_high()[d], between = a.interior_padding()[d];
    if (low == 0 && high == 0 && between == 0) continue;
    if (turns || between == 0 || node.operands()[0].dims()[d] == 0 || low < 0 || high < 0 || low > between ||
        high > between || low + high != between)
      return std::nullopt;
    turns = Turns{d, between + 1};
  }
  return turns;
}

// The value with the dimension split, as a row of the new one: such a pad, or what was joined so before.
std::optional<Row> RowOfTurns(Builder& b, const Value& value, const Turns& turns) {
  const ir::Node& node = *value.node;
  if (&node.op() == &ops::kOp_reshape && node.extras() == nullptr) {
    const Value& split = node.operands()[0];
    if (split.dims() != Split(value.dims(), turns)) return std::nullopt;
    std::optional<Row> row = RowOf(split);
    return row && row->dimension == turns.dimension + 1 ? row : std::nullopt;
  }
  const std::optional<Turns> own = TurnsOf(value);
  if (!own || own->dimension != turns.dimension || own->stride != turns.stride) return std::nullopt;
  const Value& x = node.operands()[0];
  Dims dims = x.dims();
  dims.insert(dims.begin() + static_cast<int64_t>(turns.dimension) + 1, 1);
  return Row{turns.dimension + 1,
             turns.stride,
             {{ops::Reshape(b, x, dims), ops::PadAttrs{node.attrs()}.edge_padding_low()[turns.dimension]}}};
}

Value JoinTurns(Builder& b, const Value& x, const Value& y) {
  std::optional<Turns> turns = TurnsOf(x);
  if (!turns) turns = TurnsOf(y);
  if (!turns) return {};
  const std::optional<Row> first = RowOfTurns(b, x, *turns), second = RowOfTurns(b, y, *turns);
  if (!first || !second || !b.ok()) return {};
  const std::optional<Row> both = Merged(*first, *second);
  const Value joined = both ? Made(b, *both) : Value();
  return joined ? ops::Reshape(b, joined, x.dims()) : Value();
}

}  // namespace

Value JoinPads(Builder& b, const Value& x, const Value& y) {
  const std::optional<Row> first = RowOf(x), second = first ? RowOf(y) : std::nullopt;
  if (!first || !second) return JoinTurns(b, x, y);
  const std::optional<Row> both = Merged(*first, *second);
  return both ? Made(b, *both) : Value();
}

}  // namespace weft::passes
