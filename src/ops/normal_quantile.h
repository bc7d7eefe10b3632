// The inverse of the normal distribution function, for expansions.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

// Where so large a share p of the standard normal distribution lies below, in f64: -inf of 0, inf of 1, NaN outside. Small p keep all
// their digits. Wichura's AS 241, as erf_inv.
ir::Value NormalQuantile(ir::Builder& b, const ir::Value& p);

}  // namespace weft::ops
