// The facts about operations that move_channels uses: which work in any order of dimensions, and which order the
// kernels of the others read. An order says of each dimension which one it was: transpose's permutation.
#pragma once

#include <optional>

#include "src/ir/node.h"

namespace weft::passes {

ir::Ints Inverse(const ir::Ints& order);
// The order of a transpose by `second` of a transpose by `first`.
ir::Ints Composed(const ir::Ints& first, const ir::Ints& second);
// Tells whether only dimensions of size 1 change places.
bool MovesNothing(const Dims& dims, const ir::Ints& order);

bool IsConvolution(const ir::Node& node);

// The orders in which operands are read and the result is written without a copy; empty: any.
struct Wishes {
  absl::InlinedVector<ir::Ints, 3> operands;
  ir::Ints result;
  double weight = 1;  // what another order costs, in copies of what is read and written
};
// Nothing for what has no wishes.
std::optional<Wishes> WishesOf(const ir::Node& node);

// Tells whether the result can be had in any order of dimensions: with operands in the same order, or (a convolution)
// in any.
bool IsPermutable(const ir::Node& node);
// Tells whether the operand of a permutable node has the order of its result (a scalar has none).
bool SharesOrder(const ir::Node& node, const ir::Value& operand);
// The attributes of a permutable node (no convolution) whose operands and result are in this order.
ir::Attrs PermutedAttrs(const ir::Node& node, const ir::Ints& order);

// Reads operand i of a convolution through a transpose of it: its operand has the dimensions that were permuted.
void SetConvDims(const ir::Node& convolution, size_t i, const ir::Ints& permutation, ir::Attrs* attrs);
// Gives its result in this order.
void SetConvResult(const ir::Node& convolution, const ir::Ints& order, ir::Attrs* attrs);

}  // namespace weft::passes
