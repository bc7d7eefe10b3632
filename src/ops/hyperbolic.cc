// See hyperbolic.h.
#include "src/ops/hyperbolic.h"

#include <numbers>

namespace weft::ops {
namespace {

using ir::Builder;
using ir::Value;

// exp(|x|) / 2 through exp(|x| / 2), which overflows only where the result does.
Value HalfExp(Builder& b, const Value& a) {
  const Value root = Exp(b, Mul(b, a, 0.5));
  return Mul(b, Mul(b, root, 0.5), root);
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
