// Chebyshev's series inside expansions.
#pragma once

#include <span>

#include "src/ops/build.h"

namespace weft::ops {

// The series in t within [-1, 1], by Clenshaw.
inline ir::Value ChebyshevSeries(ir::Builder& b, const ir::Value& t, std::span<const double> coefficients) {
  const ir::Value twice = Mul(b, t, 2);
  ir::Value next = FullLike(b, t, 0), last = next;
  for (size_t i = coefficients.size(); i-- > 1;) {
    ir::Value here = Add(b, Sub(b, Mul(b, twice, next), last), coefficients[i]);
    last = std::exchange(next, std::move(here));
  }
  return Add(b, Sub(b, Mul(b, t, next), last), coefficients[0]);
}

}  // namespace weft::ops
