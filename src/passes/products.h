// The facts about products that passes use: which operations are sums of products, and in what types backends have
// them.
#pragma once

#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/runtime/integer_sums.h"

namespace weft::passes {

// The transposes of convolution have its attributes and one more.
static_assert(ops::ConvBackwardInputAttrs::kDtype == +ops::ConvolutionAttrs::kDtype &&
              ops::ConvBackwardKernelAttrs::kDtype == +ops::ConvolutionAttrs::kDtype);

// The position of the attribute that holds the result's type, or -1 for what is no product.
inline int ProductDType(const ir::OpDef& op) {
  if (&op == &ops::kOp_dot_general) return ops::DotGeneralAttrs::kDtype;
  const bool conv =
      &op == &ops::kOp_convolution || &op == &ops::kOp_conv_backward_input || &op == &ops::kOp_conv_backward_kernel;
  return conv ? static_cast<int>(ops::ConvolutionAttrs::kDtype) : -1;
}

// Tells whether every backend has products of such factors with such sums, so that no factor is converted before.
inline bool IsPaired(DType factor, DType sum) {
  return factor == sum || (IsHalf(factor) && sum == DType::kF32) || (SumsInI32(factor) && sum == DType::kI32);
}

}  // namespace weft::passes
