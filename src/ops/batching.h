// Short ways to say OpDef::batching: what an operation is when its operands have examples in front, as one more dimension 0.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

// Operand i with its examples; repeated if it is the same for all.
ir::Value Batched(const ir::BatchCall& call, size_t i);
// All of them, absent ones as they are.
ir::Values AllBatched(const ir::BatchCall& call);
// Dimensions one further back; those that count from the end stay.
int64_t Shifted(int64_t dimension);
ir::Ints Shifted(const ir::Ints& dimensions);
// The list with one more entry in front.
ir::Ints Before(int64_t first, std::span<const int64_t> rest);
// Dimension `from` as dimension `to`, the others in their order.
ir::Value Moved(ir::Builder& b, const ir::Value& x, int64_t from, int64_t to);

// Of operations whose leading dimensions do not matter, whatever their attributes.
absl::Status BatchLeading(const ir::BatchCall& call, std::span<ir::Value> results);
// Of those whose attribute of that number is a list, or one, of dimensions: all operands alike.
absl::Status BatchAlong(const ir::BatchCall& call, size_t attribute, std::span<ir::Value> results);

}  // namespace weft::ops
