// bessel_i0e, bessel_i1e: modified Bessel functions of the first kind, times e^-|x|, and the formula of these without the factor.
#include <cmath>
#include <limits>
#include <span>

#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"

namespace weft::ops {
namespace {

using namespace ir;

// Up to here by the power series, all of whose terms are positive, and beyond by the scaled function's fit; f32 needs so many terms.
constexpr double kNear = 4;
constexpr size_t kTerms32 = 10;

Value I0e(Builder& b, const Value& x) { return ModifiedBessel(b, x, 0, true); }
Value I1e(Builder& b, const Value& x) { return ModifiedBessel(b, x, 1, true); }

// Both turn at 0, where the mean of the slopes on its sides stands, as in JAX.
Value I0eSlope(Builder& b, const Value& x, const Value& y) {
  return Sub(b, Unary(b, kOp_bessel_i1e, x), Mul(b, Unary(b, kOp_sign, x), y));
}
Value I1eSlope(Builder& b, const Value& x, const Value& y) {
  const Value size = Abs(b, x), near = Compare(b, Direction::kLt, size, kNearOrigin);
  const Value none = FullLike(b, x, 0), small = Select(b, near, x, none);
  const Value series = Mul(b, FirstOverX(b, small, true), Exp(b, Neg(b, Select(b, near, size, none))));
  const Value quotient = Select(b, near, series, Div(b, y, Select(b, near, FullLike(b, x, 1), x)));
  return Sub(b, Sub(b, Unary(b, kOp_bessel_i0e, x), Mul(b, Unary(b, kOp_sign, x), y)), quotient);
}

constexpr Sample kSamples[] = {{"T[2,3]", 0.2, 12}, {"T[]", -12, -0.2}, {"T[0,3]", 0.2, 12}, {"T[131]", 0.2, 12}};
constexpr Tolerance kTolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-6};

}  // namespace

Value ModifiedBessel(Builder& b, const Value& x, int order, bool scaled) {
  const bool wide = x.dtype() == DType::kF64;
  const auto terms = order == 0 ? std::span<const double>(kI0Near) : std::span<const double>(kI1Near);
  const auto wide_fit = order == 0 ? std::span<const double>(kI0Far) : std::span<const double>(kI1Far);
  const auto fit = order == 0 ? std::span<const double>(kI0Far32) : std::span<const double>(kI1Far32);
  const Value a = Abs(b, x), near = Compare(b, Direction::kLe, a, kNear);
  const Value held = Select(b, near, a, FullLike(b, a, 1)), beyond = Select(b, near, FullLike(b, a, kNear), a);
  Value small = Polynomial(b, Mul(b, Square(b, held), 0.25), wide ? terms : terms.last(kTerms32));
  if (order == 1) small = Mul(b, held, small);
  Value far = Polynomial(b, Add(b, Div(b, 2 * kNear, beyond), -1), wide ? wide_fit : fit);
  far = Div(b, far, Sqrt(b, beyond));
  if (scaled) {
    small = Mul(b, small, Exp(b, Neg(b, held)));
  } else {
    // A large exponential in two parts, of which neither is infinite where the product is not; the other part is 1 elsewhere.
    const Value large = Compare(b, Direction::kGt, beyond, wide ? 700 : 80), one = FullLike(b, a, 1);
    const Value less = Exp(b, Select(b, large, Add(b, beyond, -8), beyond));
    const Value product = Mul(b, Mul(b, less, far), Select(b, large, FullLike(b, a, std::exp(8.0)), one));
    far = Select(b, Compare(b, Direction::kEq, a, std::numeric_limits<double>::infinity()), a, product);
  }
  const Value y = Select(b, near, small, far);
  return order == 0 ? y : Mul(b, Unary(b, kOp_sign, x), y);
}

Value FirstOverX(Builder& b, const Value& x, bool modified) {
  constexpr double kTerms[] = {1.0 / 5760, 1.0 / 288, 1.0 / 24, 1.0 / 4};  // 1 / (2 k! (k + 1)!), of k from 4 down to 1
  const Value q = Mul(b, Square(b, x), modified ? 0.25 : -0.25);
  Value sum = FullLike(b, x, kTerms[0]);
  for (const double term : {kTerms[1], kTerms[2], kTerms[3], 0.5}) sum = Add(b, Mul(b, sum, q), term);
  return sum;
}

constinit const OpDef kOp_bessel_i0e = Special({
    .name = "weft.bessel_i0e",
    .c_name = "bessel_i0e",
    .doc = "Elementwise e^-|x| times the modified Bessel function of the first kind of order 0.",
    .example = "y = wf_bessel_i0e(s, x);",
    .gradient = GradientUnary<I0eSlope>,
    .expand = ExpandUnary<I0e>,
    .samples = kSamples,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_bessel_i1e = Special({
    .name = "weft.bessel_i1e",
    .c_name = "bessel_i1e",
    .doc = "Elementwise e^-|x| times the modified Bessel function of the first kind of order 1.",
    .example = "y = wf_bessel_i1e(s, x);",
    .gradient = GradientUnary<I1eSlope>,
    .expand = ExpandUnary<I1e>,
    .samples = kSamples,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
