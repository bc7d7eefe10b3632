// See hyperbolic.h.
#include "src/ops/hyperbolic.h"

#include <cmath>
#include <numbers>

namespace weft::ops {
namespace {

using ir::Builder;
using ir::Value;

// exp(|x|) / 2, of a large one in two parts, so that it overflows only where the result does.
Value HalfExp(Builder& b, const Value& a) {
  const Value large = Compare(b, Direction::kGt, a, a.dtype() == DType::kF64 ? 700 : 80);
  const Value most = Exp(b, Select(b, large, Add(b, a, -8), a));
  return Mul(b, most, Select(b, large, FullLike(b, a, std::exp(8.0) / 2), FullLike(b, a, 0.5)));
}

}  // namespace

Value Cosh(Builder& b, const Value& x) {
  const Value a = Abs(b, x);
  return Add(b, HalfExp(b, a), Mul(b, Exp(b, Neg(b, a)), 0.5));
}

Value Sinh(Builder& b, const Value& x) {
  const Value a = Abs(b, x), e = Unary(b, kOp_expm1, a);
  const Value small = Mul(b, Add(b, e, Div(b, e, Add(b, e, 1))), 0.5);
  const Value positive =
      Select(b, Compare(b, Direction::kGt, a, 1), Sub(b, HalfExp(b, a), Mul(b, Exp(b, Neg(b, a)), 0.5)), small);
  return Mul(b, Unary(b, kOp_sign, x), positive);
}

// sign(x) log(|x| + sqrt(x² + 1)), as log1p(|x| + x² / (1 + sqrt(x² + 1))).
Value Asinh(Builder& b, const Value& x) {
  const Value a = Abs(b, x), square = Mul(b, a, a);
  const Value near = Unary(b, kOp_log1p, Add(b, a, Div(b, square, Add(b, Sqrt(b, Add(b, square, 1)), 1))));
  const Value far = Add(b, Log(b, a), std::numbers::ln2);
  const Value positive = Select(b, Compare(b, Direction::kGt, a, LargeRoot(x)), far, near);
  return Mul(b, Unary(b, kOp_sign, x), positive);
}

}  // namespace weft::ops
