// var and std share these: attributes, shape rule and the variance itself.
#pragma once

#include "absl/functional/function_ref.h"
#include "src/ops/families.h"

namespace weft::ops {

inline constexpr ir::OperandDef kVarianceOperands[] = {{"x", ir::kF | ir::kC, "operand"}};
inline constexpr ir::AttrDef kVarianceAttrs[] = {
    kReductionAttrs[0],
    kReductionAttrs[1],
    {"correction", ir::AttrType::kInt, "taken off the count: 0 NumPy's, 1 the unbiased", false, "0"},
    {"fraction", ir::AttrType::kDouble, "taken off the count besides, where correction is no whole number", false,
     "0"}};
inline constexpr ir::Sample kVarianceSamples[] = {{"T[2,3]"},
                                                  {"T[4,5,3] dims=[0,-1] correction=1"},
                                                  {"T[3,131] dims=[1] keepdims=true"},
                                                  {"T[2,5] dims=[1] correction=1 fraction=0.5"}};
inline constexpr ir::Tolerance kVarianceTolerance = {
    .f32 = 8e-6, .f64 = 1e-13, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 4e-6};

// The variance of complex numbers is real: that of the real parts plus that of the imaginary ones.
absl::StatusOr<ir::Value> ComplexVariance(ir::Builder& b, const ir::Value& x, const ir::Attrs& attrs);
// The cotangent of x, where `g` is that of its variance, with the axes kept.
absl::StatusOr<ir::Value> ComplexVarianceGradient(ir::Builder& b, const ir::Value& x, const ir::Value& g,
                                                  const ir::Attrs& attrs);

absl::Status InferVariance(const ir::InferCall& call, ir::Types* results);

// The mean of squares, in the range of its type: mean(x^2) = mean / scale^2, where mean is that of (x * scale)^2 and scale a power of
// two, 1 unless squares would be too large for the type or lose digits below it.
struct MeanSquare {
  ir::Value mean, scale;
  // 1 / sqrt(mean(x^2) + epsilon).
  ir::Value Inverse(ir::Builder& b, double epsilon) const;
  // mean(x^2), as far as the type has it.
  ir::Value Plain(ir::Builder& b) const;
};
// Computes the mean square of x minus `mean`, which may be absent, where `plain` is the mean that comes out without a
// factor. `reduce` gives the mean of a tensor shaped like x; mean and factor spread over x by `spread`. The CPU backend
// omits the second sum where no row needs it: it begins at x again, so that nothing is kept for it. Where `epsilon` is
// added, small squares matter as far as they stand out from it.
struct SquareCall {
  ir::Value x, mean, plain;
  double epsilon = 0;
};
MeanSquare InRange(ir::Builder& b, const SquareCall& call, absl::FunctionRef<ir::Value(const ir::Value&)> spread,
                   absl::FunctionRef<ir::Value(const ir::Value&)> reduce);
// The same where mean and factor have the rank of x.
MeanSquare InRange(ir::Builder& b, const SquareCall& call, absl::FunctionRef<ir::Value(const ir::Value&)> reduce);

// In two passes: the distance from the mean, squared. (The mean of squares less the square of the mean cancels.)
struct Spread {
  ir::Value centered;  // x less its mean
  double share = 0;    // 1 / (count - correction)
  MeanSquare square;   // with the axes kept
  Dims dims;           // of the result
};
absl::StatusOr<Spread> SpreadOf(ir::Builder& b, const ir::Value& x, const ir::Attrs& attrs);

}  // namespace weft::ops
