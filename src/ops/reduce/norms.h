// Lengths of vectors.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// (Σ |x|^p)^(1 / p) over the (sorted) axes, which stay with size 1: of p = inf the largest size, of -inf the least, of 0 how many are not
// 0. The gradient of a length of 0 is 0.
ir::Value NormKeep(ir::Builder& b, const ir::Value& x, double p, const ir::Ints& axes);

}  // namespace weft::ops
