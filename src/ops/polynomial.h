// Polynomials inside expansions. bf16 and f16 are computed in f32: their own rounding would eat the
// coefficients.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// Horner's scheme, highest power first.
inline ir::Value Polynomial(ir::Builder& b, const ir::Value& x, std::span<const double> coefficients) {
  ir::Value y = FullLike(b, x, coefficients[0]);
  for (double c : coefficients.subspan(1)) y = Add(b, Mul(b, y, x), c);
  return y;
}

// f(x), in f32 where x is narrower.
template <ir::Value (*f)(ir::Builder&, const ir::Value& x)>
absl::Status ExpandWide(const ir::ExpandCall& call, std::span<ir::Value> results) {
  const ir::Value& x = call.operands[0];
  const DType dtype = x.dtype();
  const ir::Value wide = BitsOf(dtype) < 32 ? Convert(call.b, x, DType::kF32) : x;
  results[0] = Convert(call.b, f(call.b, wide), dtype);
  return absl::OkStatus();
}

}  // namespace weft::ops
