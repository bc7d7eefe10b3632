// Short ways to say OpDef::batching: what an operation is when its operands have examples in front, as one more dimension 0.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

// Tells whether an operand has examples: `one` is its type for one example, `now` its type here.
inline bool HasExamples(const ir::Type& now, const ir::Type& one) { return now.rank() == one.rank() + 1; }
// Tells whether one of the operands from `first` on has examples.
bool AnyBatched(const ir::BatchCall& call, size_t first);
// Operand i with its examples; repeated if it is the same for all.
ir::Value Batched(const ir::BatchCall& call, size_t i);
// All of them, absent ones as they are.
ir::Values AllBatched(const ir::BatchCall& call);
// Dimensions one further back; those that count from the end stay.
int64_t Shifted(int64_t dimension);
ir::Ints Shifted(const ir::Ints& dimensions);
// The attributes, those of these numbers with one more entry in front where they are there.
ir::Attrs Longer(ir::Attrs attrs, std::initializer_list<std::pair<size_t, int64_t>> first);
// The list with one more entry in front.
ir::Ints Before(int64_t first, std::span<const int64_t> rest);
// Dimension `from` as dimension `to`, the others in their order.
ir::Value Moved(ir::Builder& b, const ir::Value& x, int64_t from, int64_t to);

// Scalars of each example, repeated over tensors of shape `dims`, whose first dimension is theirs.
ir::Value OfEachExample(ir::Builder& b, const ir::Value& scalars, const Dims& dims);

// Batches operations whose leading dimensions do not matter, whatever their attributes.
absl::Status BatchLeading(const ir::BatchCall& call, std::span<ir::Value> results);
// Batches operations whose attribute of that number is a dimension or a list of dimensions, the same for all operands.
absl::Status BatchAlong(const ir::BatchCall& call, size_t attribute, std::span<ir::Value> results);
template <size_t attribute>
absl::Status BatchAlong(const ir::BatchCall& call, std::span<ir::Value> results) {
  return BatchAlong(call, attribute, results);
}
// Batches operations that take so many tensors, and behind them scalars for a function. Gives no results where an
// example has such a scalar of its own.
absl::Status BatchInputs(const ir::BatchCall& call, size_t inputs, ir::Attrs attrs, std::span<ir::Value> results);

// Scalar operands from `first` on as [examples, count]: where each example begins.
ir::Value Starts(const ir::BatchCall& call, size_t first);

}  // namespace weft::ops
