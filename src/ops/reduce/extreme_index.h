// argmax and argmin share these: attributes, shape rule and expansion.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr ir::OperandDef kExtremeIndexOperands[] = {{"x", ir::kNumber, "operand"}};
inline constexpr ir::AttrDef kExtremeIndexAttrs[] = {
    {"axis", ir::AttrType::kInt, "axis to search; negative counts from the end", false, "-1"},
    {"keepdims", ir::AttrType::kBool, "keep the axis with size 1", false, "false"},
    {"dtype", ir::AttrType::kDType, "of the index: i32, or i64 for axes of 2^31 elements and more; absent: i32"},
};
inline constexpr ir::Sample kExtremeIndexSamples[] = {
    {"T[4,7]"}, {"T[3,5,2] axis=1 keepdims=true"}, {"T[1]"}, {"T[0,3]"}, {"T[2,131]"},
    {"T[]"},    {"T[3,4] axis=0 dtype=i64"}};

absl::Status InferExtremeIndex(const ir::InferCall& call, ir::Types* results);

// The smallest index among the elements that equal the extreme (kMax or kMin); NaN counts as the extreme.
absl::Status ExpandExtremeIndex(const ir::ExpandCall& call, Reducer extreme, std::span<ir::Value> results);

}  // namespace weft::ops
