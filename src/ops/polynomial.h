// Polynomials inside expansions.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// Horner's scheme, highest power first.
inline ir::Value Polynomial(ir::Builder& b, const ir::Value& x, std::span<const double> coefficients) {
  ir::Value y = FullLike(b, x, coefficients[0]);
  for (double c : coefficients.subspan(1)) y = Add(b, Mul(b, y, x), c);
  return y;
}

}  // namespace weft::ops
