// Short spellings for rules: gradients and expansions read like their formulas. Each is one Call; nothing is decided here.
#pragma once

#include "src/ops/call.h"

namespace weft::ops {

// The reducers of reduce, reduce_window and scatter, in the order of their enumerators.
enum class Reducer : int64_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAnd = 4, kOr = 5 };
inline constexpr std::string_view kReducerNames[] = {"sum", "prod", "max", "min", "and", "or"};

// A constant of x's dtype and shape; `Scalar` has shape [].
ir::Value Scalar(ir::Builder& b, DType dtype, double value);
ir::Value FullLike(ir::Builder& b, const ir::Value& x, double value);

ir::Value Add(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Sub(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Mul(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Div(ir::Builder& b, ir::Value x, ir::Value y);
ir::Value Neg(ir::Builder& b, ir::Value x);
ir::Value Exp(ir::Builder& b, ir::Value x);
ir::Value Log(ir::Builder& b, ir::Value x);
ir::Value Select(ir::Builder& b, ir::Value condition, ir::Value x, ir::Value y);
ir::Value Convert(ir::Builder& b, ir::Value x, DType dtype);
// No node if nothing changes.
ir::Value Reshape(ir::Builder& b, ir::Value x, const Dims& dims);
ir::Value Transpose(ir::Builder& b, ir::Value x, ir::Ints permutation);
ir::Value BroadcastInDim(ir::Builder& b, ir::Value x, const Dims& dims, ir::Ints positions);
// StableHLO's reduce: the dimensions vanish.
ir::Value Reduce(ir::Builder& b, ir::Value x, Reducer reducer, ir::Ints dimensions);
// The reduced dimensions stay with size 1.
ir::Value ReduceKeep(ir::Builder& b, ir::Value x, Reducer reducer, ir::Ints dimensions);

// Negative axes count from the end. A UserError names the attribute, the value and the rank.
absl::StatusOr<int64_t> NormalizeAxis(std::string_view attribute, int64_t axis, size_t rank);
absl::StatusOr<ir::Ints> NormalizeAxes(std::string_view attribute, std::span<const int64_t> axes, size_t rank);

// Copies one element between tensors of one dtype.
void CopyElement(const HostTensor& from, int64_t i, HostTensor& to, int64_t j);

}  // namespace weft::ops
