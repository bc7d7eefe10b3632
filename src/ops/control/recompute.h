// Calls whose gradient keeps little and computes the rest again (rematerialisation; JAX's checkpoint).
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// The values that a call's gradient keeps, beside its operands. An absent attribute: everything expensive to compute.
enum class Keep : int64_t {
  kOperands = 0,  // nothing else
  kProducts = 1,  // results of dot_general and convolution
};

inline constexpr ir::AttrDef kCallAttrs[] = {
    {"keep", ir::AttrType::kInt,
     "0: the gradient keeps the operands alone and computes the rest again; 1: the results of products, too"}};

// The gradient of the call's function in two steps (see ir::RegionSplitFn), of which backward computes again what it is not to keep.
absl::StatusOr<Ref<const ir::SplitGradient>> RecomputeSplit(const ir::GradCall& call, Keep keep,
                                                            std::span<const bool> given);

}  // namespace weft::ops
