// Functions of floats (f32 or f64) that no operation of ours computes, in terms of those that do. Each gives what StableHLO's own
// decomposition of the CHLO operation gives, to the last digits.
#pragma once

#include "src/ops/build.h"

namespace weft::stablehlo {

ir::Value Erfc(ir::Builder& b, const ir::Value& x);
ir::Value Lgamma(ir::Builder& b, const ir::Value& x);
ir::Value Digamma(ir::Builder& b, const ir::Value& x);
// exp(-|x|) I1(x)
ir::Value BesselI1e(ir::Builder& b, const ir::Value& x);
// Hurwitz's: the sum over k >= 0 of (q + k)^-x
ir::Value Zeta(ir::Builder& b, const ir::Value& x, const ir::Value& q);
ir::Value Polygamma(ir::Builder& b, const ir::Value& n, const ir::Value& x);

}  // namespace weft::stablehlo
