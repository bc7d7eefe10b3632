// Logarithms of the gamma function beside Stirling's formula, in f64, for expansions whose large numbers would cancel.
#pragma once

#include "src/ops/polynomial.h"

namespace weft::ops {

// log(1 + t) - t, to full accuracy near 0: of s = t / (2 + t) log(1 + t) is 2 (s + s³ / 3 + s⁵ / 5 + …) and t is 2 s / (1 - s). `whole`,
// where it is given, is 1 + t, which t no longer says near -1.
inline ir::Value Log1pLess(ir::Builder& b, const ir::Value& t, const ir::Value& whole = {}) {
  constexpr double kTerms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                               1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  const ir::Value near = Compare(b, Direction::kLt, Abs(b, t), 0.3);
  const ir::Value held = Select(b, near, t, FullLike(b, t, 0));
  const ir::Value s = Div(b, held, Add(b, held, 2)), square = Square(b, s);
  const ir::Value first = Div(b, Mul(b, square, -2), Sub(b, 1, s));
  const ir::Value rest = Mul(b, Mul(b, Mul(b, square, s), Polynomial(b, square, kTerms)), 2);
  return Select(b, near, Add(b, first, rest), Sub(b, whole ? Log(b, whole) : Unary(b, kOp_log1p, t), t));
}

// log Γ(z) - ((z - 1/2) log z - z + log(2π) / 2), Binet's function, by its continued fraction: DLMF 5.10.1. Within 1e-16 from 8 on
// and 1e-7 at 1.
inline ir::Value Binet(ir::Builder& b, const ir::Value& z) {
  constexpr double kParts[] = {109535241009.0 / 48264275462,
                               29944523.0 / 19733142,
                               22999.0 / 22737,
                               195.0 / 371,
                               53.0 / 210,
                               1.0 / 30,
                               1.0 / 12};
  ir::Value below = z;
  for (size_t i = 0; i + 1 < std::size(kParts); ++i) below = Add(b, z, Div(b, kParts[i], below));
  return Div(b, kParts[std::size(kParts) - 1], below);
}

}  // namespace weft::ops
