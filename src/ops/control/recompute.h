// Calls whose gradient keeps little and computes the rest again (rematerialisation; JAX's checkpoint).
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// What the gradient of a call keeps, beside its operands. An absent attribute: whatever is dear to compute.
enum class Keep : int64_t {
  kOperands = 0,  // nothing else
  kProducts = 1,  // results of dot_general and convolution
};

inline constexpr ir::AttrDef kCallAttrs[] = {
    {"keep", ir::AttrType::kInt,
     "0: the gradient keeps the operands alone and computes the rest again; 1: the results of products, too"}};

// The operation's rule where it says what to keep. What is computed again reads its operands behind a barrier, together with the
// cotangents: nothing merges it with the run forwards, nothing starts it before the cotangents are there, and whoever cuts a
// function in what needs them and what does not finds that it does. The gradient is such a call again.
absl::Status RecomputeGradient(const ir::GradCall& call, Keep keep, std::span<ir::Value> grads);

}  // namespace weft::ops
