// Comparators, and what sort, argsort and top_k share.
#pragma once

#include "src/ops/scalar_function.h"

namespace weft::ops {

// A function of 2n scalars, two of each type, that tells whether the first of the first pair comes before the second.
// Floats: -0 equals 0, NaN comes last (descending: first). The other types do not matter.
absl::StatusOr<Ref<const ir::Function>> Comparator(std::span<const DType> types, bool descending);

// sort_by the first tensor, stable; the others move along. Empty after a failure.
ir::Values SortByFirst(ir::Builder& b, ir::Values tensors, int64_t axis, bool descending);

inline constexpr ir::OperandDef kSortOperands[] = {{"x", ir::kAnyType, "operand"}};
inline constexpr ir::AttrDef kSortAttrs[] = {
    {"axis", ir::AttrType::kInt, "axis to sort along; negative counts from the end", false, "-1"},
    {"descending", ir::AttrType::kBool, "the largest first", false, "false"}};

}  // namespace weft::ops
