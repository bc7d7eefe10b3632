// See join_pads.h.
#include "src/passes/join_pads.h"

#include <algorithm>
#include <optional>

#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/passes/literals.h"

namespace weft::passes {
namespace {

using ir::Builder;
using ir::Value;

// Concatenations of more grow no further: a chain of n would make n of them, of n operands.
constexpr size_t kMostParts = 512;

// x between zeros along one dimension.
struct Padded {
  Value x;
  size_t dimension;
  int64_t low, high;

  int64_t end() const { return low + x.dims()[dimension]; }
};

std::optional<Padded> PaddedOf(const Value& value) {
  const ir::Node& node = *value.node;
  if (&node.op() != &ops::kOp_pad || node.extras() != nullptr || !IsUniform(node.operands()[1], 0.0))
    return std::nullopt;
  const ops::PadAttrs a{node.attrs()};
  std::optional<Padded> padded;
  for (size_t d = 0; d < value.dims().size(); ++d) {
    const int64_t low = a.edge_padding_low()[d], high = a.edge_padding_high()[d];
    if (low < 0 || high < 0 || a.interior_padding()[d] != 0) return std::nullopt;
    if (low == 0 && high == 0) continue;
    if (padded) return std::nullopt;
    padded = Padded{node.operands()[0], d, low, high};
  }
  return padded;
}

bool PlusZero(const Value& value) {
  return &value.node->op() == &ops::kOp_add && value.node->extras() == nullptr &&
         IsUniform(value.node->operands()[1], 0.0);
}

// What x consists of where it was joined already; else x, to which a zero has been added.
void AddParts(Builder& b, const Padded& padded, ir::Values* parts) {
  const ir::Node& node = *padded.x.node;
  const bool signed_zeros = IsFloat(padded.x.dtype()) || IsComplex(padded.x.dtype());
  const bool joined = &node.op() == &ops::kOp_concatenate && node.extras() == nullptr &&
                      ops::ConcatenateAttrs{node.attrs()}.dimension() == static_cast<int64_t>(padded.dimension) &&
                      (!signed_zeros || std::ranges::all_of(node.operands(), PlusZero));
  if (joined) {
    parts->insert(parts->end(), node.operands().begin(), node.operands().end());
  } else {
    parts->push_back(signed_zeros ? ops::Add(b, padded.x, ops::FullLike(b, padded.x, 0)) : padded.x);
  }
}

}  // namespace

Value JoinPads(Builder& b, const Value& x, const Value& y) {
  std::optional<Padded> first = PaddedOf(x), second = PaddedOf(y);
  if (!first || !second || first->dimension != second->dimension) return {};
  if (first->end() != second->low) std::swap(first, second);
  if (first->end() != second->low) return {};
  ir::Values parts;
  AddParts(b, *first, &parts);
  AddParts(b, *second, &parts);
  if (!b.ok() || parts.size() > kMostParts) return {};
  const size_t d = first->dimension;
  const Value whole = ops::Call(b, ops::kOp_concatenate, std::move(parts), {static_cast<int64_t>(d)});
  ir::Ints low(x.dims().size(), 0), high = low;
  low[d] = first->low;
  high[d] = second->high;
  return ops::Pad(b, whole, 0, std::move(low), std::move(high), ir::Ints(x.dims().size(), 0));
}

}  // namespace weft::passes
