// What var and std share: attributes, shape rule and the variance itself.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr ir::OperandDef kVarianceOperands[] = {{"x", ir::kF, "operand"}};
inline constexpr ir::AttrDef kVarianceAttrs[] = {
    kReductionAttrs[0],
    kReductionAttrs[1],
    {"correction", ir::AttrType::kInt, "taken off the count: 0 NumPy's, 1 the unbiased", false, "0"}};
inline constexpr ir::Sample kVarianceSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1] correction=1"}, {"T[3,131] dims=[1] keepdims=true"}};
inline constexpr ir::Tolerance kVarianceTolerance = {
    .f32 = 8e-6, .f64 = 1e-13, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 4e-6};

absl::Status InferVariance(const ir::InferCall& call, ir::Types* results);

// In two passes: the distance from the mean, squared. (The mean of squares less the square of the mean cancels.)
absl::StatusOr<ir::Value> Variance(const ir::ExpandCall& call);

}  // namespace weft::ops
