// bessel_i0e, bessel_i1e: modified Bessel functions of the first kind, times e^-|x|.
#include <span>

#include "src/ops/elementwise/chebyshev.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"

namespace weft::ops {
namespace {

using namespace ir;

// Chebyshev coefficients of i1e(x) / x on [0, 8] in x / 4 - 1, and of sqrt(x) i1e(x) from 8 on in 16 / x - 1, are those of
// special_fits.h. f32 needs the first ones only.
constexpr size_t kI1eNear32 = 17, kI1eFar32 = 8;

// The same of i0e(x) and of sqrt(x) i0e(x); made by interpolation of mpmath's function with 60 digits.
constexpr double kI0eNear[] = {
    0.33839763720473803,    -0.3046826723431984,     0.17162090152220877,    -0.09490109704804764,
    0.04930528423967071,    -0.02373741480589947,    0.010546460394594998,   -0.004324309995050576,
    0.0016394756169413357,  -0.0005763755745385824,  0.00018850288509584165, -5.754195010082104e-05,
    1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07,
    6.046995022541919e-08,  -1.300025009986248e-08,  2.6598237246823866e-09, -5.189795601635263e-10,
    9.675809035373237e-11,  -1.726826291441556e-11,  2.95505266312964e-12,   -4.856446783111929e-13,
    7.676185498604936e-14,  -1.1685332877993451e-14, 1.715391285555133e-15,  -2.431279846547955e-16,
    3.3307945188222384e-17};
constexpr double kI0eFar[] = {
    0.4022452055070544,      0.0033691164782556943,   6.889758346916825e-05,   2.8913705208347567e-06,
    2.0489185894690638e-07,  2.266668990498178e-08,   3.3962320257083865e-09,  4.94060238822497e-10,
    1.1889147107846439e-11,  -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13,   3.8527783827421426e-13,  1.54008621752141e-14,    -4.150569347287222e-14,
    -9.554846698828307e-15,  3.8116806693526224e-15,  1.7725601330565263e-15,  -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17,   4.46562142029676e-17,    -4.830504485944182e-18};
constexpr size_t kI0eNear32 = 19, kI0eFar32 = 8;

struct Fit {
  std::span<const double> near, far;
  size_t near32, far32;  // so many of them in f32
};
constexpr Fit kI0e = {kI0eNear, kI0eFar, kI0eNear32, kI0eFar32}, kI1e = {kI1eNear, kI1eFar, kI1eNear32, kI1eFar32};

// Computes the function of a = |x| by its two fits, up to 8 and beyond; `times` multiplies the first by a.
Value OfSize(Builder& b, const Value& a, const Fit& fit, bool times) {
  const bool wide = a.dtype() == DType::kF64;
  Value small = ChebyshevSeries(b, Add(b, Mul(b, a, 0.25), -1), wide ? fit.near : fit.near.first(fit.near32));
  if (times) small = Mul(b, small, a);
  const Value far = ChebyshevSeries(b, Add(b, Div(b, 16, a), -1), wide ? fit.far : fit.far.first(fit.far32));
  return Select(b, Compare(b, Direction::kLe, a, 8), small, Div(b, far, Sqrt(b, a)));
}

Value I0e(Builder& b, const Value& x) { return OfSize(b, Abs(b, x), kI0e, false); }
Value I1e(Builder& b, const Value& x) { return Mul(b, Unary(b, kOp_sign, x), OfSize(b, Abs(b, x), kI1e, true)); }

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
});

}  // namespace weft::ops
