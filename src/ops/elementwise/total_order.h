// IEEE's total order of floats: -NaN, -inf, …, -0, 0, …, inf, NaN.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

// Whole numbers as wide as the floats that are ordered as these are.
ir::Value InTotalOrder(ir::Builder& b, const ir::Value& x);
// The way back.
ir::Value FromTotalOrder(ir::Builder& b, const ir::Value& order, DType dtype);

}  // namespace weft::ops
