// Short spellings for rules: gradients and expansions read like their formulas. Each is one Call; nothing is
// decided here. All of them pass an earlier failure on: an empty operand gives an empty result.
#pragma once

#include "src/ops/call.h"
#include "src/ops/reducer.h"

namespace weft::ops {

// The directions of compare, in the order of its enumerators.
enum class Direction : int64_t { kEq = 0, kNe = 1, kGe = 2, kGt = 3, kLe = 4, kLt = 5 };

// A constant of x's dtype and shape; `Scalar` has shape [].
ir::Value Scalar(ir::Builder& b, DType dtype, double value);
ir::Value Full(ir::Builder& b, DType dtype, const Dims& dims, double value);
ir::Value FullLike(ir::Builder& b, const ir::Value& x, double value);
ir::Value Constant(ir::Builder& b, HostTensor value);
// The index along one dimension.
ir::Value Iota(ir::Builder& b, DType dtype, const Dims& dims, int64_t dimension);

ir::Value Add(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Sub(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Mul(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Div(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Maximum(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Minimum(ir::Builder& b, ir::Value x, ir::Value y);
// With a constant of x's dtype.
ir::Value Add(ir::Builder& b, ir::Value x, double y);
ir::Value Sub(ir::Builder& b, double x, ir::Value y);
ir::Value Mul(ir::Builder& b, ir::Value x, double y);
ir::Value Div(ir::Builder& b, double x, ir::Value y);
ir::Value Neg(ir::Builder& b, ir::Value x);
ir::Value Exp(ir::Builder& b, ir::Value x);
ir::Value Log(ir::Builder& b, ir::Value x);
ir::Value Tanh(ir::Builder& b, ir::Value x);
ir::Value Sigmoid(ir::Builder& b, ir::Value x);
ir::Value Sqrt(ir::Builder& b, ir::Value x);
ir::Value Rsqrt(ir::Builder& b, ir::Value x);
ir::Value Square(ir::Builder& b, ir::Value x);
ir::Value Abs(ir::Builder& b, ir::Value x);
// Any operation of one operand and no attributes.
ir::Value Unary(ir::Builder& b, const ir::OpDef& op, ir::Value x);
ir::Value Compare(ir::Builder& b, Direction direction, ir::Value x, ir::Value y);
ir::Value Compare(ir::Builder& b, Direction direction, ir::Value x, double y);
ir::Value And(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Select(ir::Builder& b, ir::Value condition, ir::Value x, ir::Value y);
ir::Value Convert(ir::Builder& b, ir::Value x, DType dtype);

// No node if nothing changes.
ir::Value Reshape(ir::Builder& b, ir::Value x, const Dims& dims);
ir::Value Transpose(ir::Builder& b, ir::Value x, ir::Ints permutation);
// NumPy's alignment at the last dimension.
ir::Value BroadcastTo(ir::Builder& b, ir::Value x, const Dims& dims);
ir::Value BroadcastInDim(ir::Builder& b, ir::Value x, const Dims& dims, ir::Ints positions);
ir::Value BroadcastInAnyOrder(ir::Builder& b, ir::Value x, const Dims& dims, ir::Ints positions);
// Undoes a NumPy broadcast: sums g down to `dims`.
ir::Value SumTo(ir::Builder& b, ir::Value g, const Dims& dims);
ir::Value Slice(ir::Builder& b, ir::Value x, ir::Ints start, ir::Ints limit, ir::Ints strides);
// Zeros (or `value`) around; negative amounts cut.
ir::Value Pad(ir::Builder& b, ir::Value x, double value, ir::Ints low, ir::Ints high, ir::Ints interior);
ir::Value Reverse(ir::Builder& b, ir::Value x, ir::Ints dimensions);

// StableHLO's reduce: the dimensions vanish.
ir::Value Reduce(ir::Builder& b, ir::Value x, Reducer reducer, ir::Ints dimensions);
// The reduced dimensions stay with size 1.
ir::Value ReduceKeep(ir::Builder& b, ir::Value x, Reducer reducer, ir::Ints dimensions);
// Undoes the shape of a reduce: repeats g along the dimensions that vanished.
ir::Value Unreduce(ir::Builder& b, ir::Value g, const Dims& dims, std::span<const int64_t> dimensions);
// Sum over the last dimensions' product, for operands [..., M, K] and [..., K, N] with equal batch
// dimensions.
ir::Value BatchMatmul(ir::Builder& b, ir::Value x, ir::Value y, bool transpose_x, bool transpose_y);

// Negative axes count from the end. A UserError names the attribute, the value and the rank.
absl::StatusOr<int64_t> NormalizeAxis(std::string_view attribute, int64_t axis, size_t rank);
// Also refuses repetitions; the result is sorted.
absl::StatusOr<ir::Ints> NormalizeAxes(std::string_view attribute, std::span<const int64_t> axes, size_t rank);
// Attribute i, or all axes where it is absent.
absl::StatusOr<ir::Ints> AxesOrAll(const ir::Attrs& attrs, size_t i, size_t rank);
// 0, 1, …, rank - 1.
ir::Ints Axes(size_t rank);
// `dims` without the (sorted) dimensions.
Dims Without(const Dims& dims, std::span<const int64_t> dimensions);
inline ir::Ints ToInts(std::span<const int64_t> values) { return ir::Ints(values.begin(), values.end()); }
inline Dims ToDims(std::span<const int64_t> values) { return Dims(values.begin(), values.end()); }

// Copies one element between tensors of one dtype.
void CopyElement(const HostTensor& from, int64_t i, HostTensor& to, int64_t j);

}  // namespace weft::ops
