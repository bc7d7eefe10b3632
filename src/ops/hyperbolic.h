// Hyperbolic functions of real tensors, which are no operations of ours: formulas that lose no digits where the argument makes the
// obvious ones do.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

ir::Value Sinh(ir::Builder& b, const ir::Value& x);
ir::Value Cosh(ir::Builder& b, const ir::Value& x);
ir::Value Asinh(ir::Builder& b, const ir::Value& x);

// Whose square is still finite.
inline double LargeRoot(const ir::Value& x) { return x.dtype() == DType::kF64 ? 1e150 : 1e18; }

}  // namespace weft::ops
