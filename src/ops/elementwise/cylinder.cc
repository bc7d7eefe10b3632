// Bessel functions of orders 0 and 1: j0 j1 y0 y1 i0 i1 k0 k1, and k0e k1e, which are k0 and k1 times e^x. All in f64.
#include <limits>
#include <numbers>

#include "src/ops/elementwise/chebyshev.h"
#include "src/ops/elementwise/in_double.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Where the fits of J and Y, and those of K, meet.
constexpr double kWaves = 8, kDecay = 2;

Value Sin(Builder& b, const Value& x) { return Unary(b, kOp_sin, x); }
Value Cos(Builder& b, const Value& x) { return Unary(b, kOp_cos, x); }
// The fits up to a size are in 2 x² / size² - 1.
Value Inside(Builder& b, const Value& x, double size) { return Add(b, Mul(b, Square(b, x), 2 / (size * size)), -1); }
Value Within(Builder& b, const Value& a, double size) { return Compare(b, Direction::kLe, a, size); }
Value Held(Builder& b, const Value& where, const Value& x, double otherwise) {
  return Select(b, where, x, FullLike(b, x, otherwise));
}

// From 8 on J and Y are sqrt(2 / (π x)) times a wave of cos and sin of x - π / 4 (order 1: x - 3 π / 4), DLMF 10.17.
template <int order, bool second>
Value Wave(Builder& b, const Value& a) {
  const Value t = Add(b, Div(b, 128, Square(b, a)), -1);
  const Value p = ChebyshevSeries(b, t, order == 0 ? std::span<const double>(kP0Far) : std::span<const double>(kP1Far));
  const Value q =
      Div(b, ChebyshevSeries(b, t, order == 0 ? std::span<const double>(kQ0Far) : std::span<const double>(kQ1Far)), a);
  const Value sine = Sin(b, a), cosine = Cos(b, a);
  const Value sum = Add(b, sine, cosine), difference = Sub(b, sine, cosine);
  // Times sqrt(2): of order 0 cos is the sum and sin the difference; of order 1 cos is the difference and sin less the sum.
  const Value& c = order == 0 ? sum : difference;
  const Value s = order == 0 ? difference : Neg(b, sum);
  const Value wave = second ? Add(b, Mul(b, p, s), Mul(b, q, c)) : Sub(b, Mul(b, p, c), Mul(b, q, s));
  return Mul(b, wave, Rsqrt(b, Mul(b, a, std::numbers::pi)));
}

template <int order>
Value J(Builder& b, const Value& x) {
  const Value a = Abs(b, x), near = Within(b, a, kWaves);
  const Value t = Inside(b, Held(b, near, a, 1), kWaves);
  const Value small =
      ChebyshevSeries(b, t, order == 0 ? std::span<const double>(kJ0Near) : std::span<const double>(kJ1Near));
  Value far = Wave<order, false>(b, Held(b, Compare(b, Direction::kGt, a, kWaves), a, 9));
  far = Select(b, Compare(b, Direction::kEq, a, kInf), FullLike(b, a, 0), far);
  Value y;
  if (order == 0) {
    y = Select(b, near, small, far);
  } else {
    y = Select(b, near, Mul(b, x, small), Select(b, Compare(b, Direction::kLt, x, 0), Neg(b, far), far));
  }
  return Select(b, IsNan(b, x), x, y);
}

template <int order>
Value Y(Builder& b, const Value& x) {
  const Value near = Within(b, x, kWaves), above = Compare(b, Direction::kGt, x, 0);
  const Value held = Held(b, And(b, near, above), x, 1), t = Inside(b, held, kWaves);
  const Value fit =
      ChebyshevSeries(b, t, order == 0 ? std::span<const double>(kY0Near) : std::span<const double>(kY1Near));
  const Value log = Mul(b, Log(b, held), J<order>(b, held));
  Value small;
  if (order == 0) {
    small = Add(b, Mul(b, log, 2 * std::numbers::inv_pi), fit);
  } else {
    small = Add(b, Mul(b, Sub(b, log, Div(b, 1, held)), 2 * std::numbers::inv_pi), Mul(b, fit, held));
  }
  Value far = Wave<order, true>(b, Held(b, Compare(b, Direction::kGt, x, kWaves), x, 9));
  far = Select(b, Compare(b, Direction::kEq, x, kInf), FullLike(b, x, 0), far);
  const Value y = Select(b, near, small, far);
  const Value end = Held(b, Compare(b, Direction::kEq, x, 0), FullLike(b, x, -kInf), kNan);
  return Select(b, above, y, end);
}

// In two halves of the exponential, of which neither is infinite where the product is not.
template <int order>
Value I(Builder& b, const Value& x) {
  const Value half = Exp(b, Mul(b, Abs(b, x), 0.5));
  const Value scaled = Unary(b, order == 0 ? kOp_bessel_i0e : kOp_bessel_i1e, x);
  const Value y = Mul(b, Mul(b, half, scaled), half);
  const Value far = order == 0 ? Abs(b, x) : x;
  return Select(b, Compare(b, Direction::kEq, Abs(b, x), kInf), far, y);
}

template <int order, bool scaled>
Value K(Builder& b, const Value& x) {
  const Value near = Within(b, x, kDecay), above = Compare(b, Direction::kGt, x, 0);
  const Value held = Held(b, And(b, near, above), x, 1), t = Inside(b, held, kDecay);
  const Value fit =
      ChebyshevSeries(b, t, order == 0 ? std::span<const double>(kK0Near) : std::span<const double>(kK1Near));
  const Value log = Mul(b, Log(b, Mul(b, held, 0.5)), I<order>(b, held));
  Value small = order == 0 ? Sub(b, fit, log) : Add(b, Add(b, Div(b, 1, held), log), Mul(b, fit, held));
  const Value beyond = Held(b, Compare(b, Direction::kGt, x, kDecay), x, 3);
  const Value series = ChebyshevSeries(b, Add(b, Div(b, 4, beyond), -1),
                                       order == 0 ? std::span<const double>(kK0Far) : std::span<const double>(kK1Far));
  Value far = Mul(b, series, Rsqrt(b, beyond));
  if (scaled) {
    small = Mul(b, small, Exp(b, held));
  } else {
    far = Mul(b, far, Exp(b, Neg(b, beyond)));
  }
  const Value end = Held(b, Compare(b, Direction::kEq, x, 0), FullLike(b, x, kInf), kNan);
  return Select(b, above, Select(b, near, small, far), end);
}

// --- Slopes, DLMF 10.6, 10.29. Those of order 1 have y / x, at 0 its limit.

Value Quotient(Builder& b, const Value& x, const Value& y, bool modified) {
  const Value near = Compare(b, Direction::kLt, Abs(b, x), kNearOrigin);
  const Value series = FirstOverX(b, Select(b, near, x, FullLike(b, x, 0)), modified);
  return Select(b, near, series, Div(b, y, Select(b, near, FullLike(b, x, 1), x)));
}
template <const OpDef& other>
Value LessOther(Builder& b, const Value& x, const Value&) {
  return Neg(b, Unary(b, other, x));
}
template <const OpDef& other>
Value Other(Builder& b, const Value& x, const Value&) {
  return Unary(b, other, x);
}
template <const OpDef& first>
Value LessQuotient(Builder& b, const Value& x, const Value& y) {
  return Sub(b, Unary(b, first, x), Quotient(b, x, y, &first == &kOp_bessel_i0));
}
Value Y1Slope(Builder& b, const Value& x, const Value& y) {
  const Value slope = Sub(b, Unary(b, kOp_bessel_y0, x), Div(b, y, x));
  return Select(b, Compare(b, Direction::kEq, x, 0), FullLike(b, x, kInf), slope);
}
Value K1Slope(Builder& b, const Value& x, const Value& y) {
  return Neg(b, Add(b, Unary(b, kOp_bessel_k0, x), Div(b, y, x)));
}
Value K0eSlope(Builder& b, const Value& x, const Value& y) {
  const Value slope = Sub(b, y, Unary(b, kOp_bessel_k1e, x));
  return Select(b, Compare(b, Direction::kEq, x, 0), FullLike(b, x, -kInf), slope);
}
Value K1eSlope(Builder& b, const Value& x, const Value& y) {
  const Value slope = Sub(b, Sub(b, y, Unary(b, kOp_bessel_k0e, x)), Div(b, y, x));
  return Select(b, Compare(b, Direction::kEq, x, 0), FullLike(b, x, -kInf), slope);
}

constexpr Sample kBoth[] = {{"T[2,3]", 0.2, 7.5}, {"T[]", -12, -9, false}, {"T[0,3]", 0.2, 12}, {"T[131]", 0.2, 20}};
constexpr Sample kAbove[] = {{"T[2,3]", 0.3, 1.8}, {"T[]", 2.5, 7.5, false}, {"T[0,3]", 0.3, 12}, {"T[131]", 0.3, 20}};
constexpr Sample kGrowing[] = {{"T[2,3]", 0.2, 3}, {"T[]", -3, -0.2}, {"T[0,3]", 0.2, 12}, {"T[131]", 0.2, 5}};
constexpr Tolerance kTolerance = {.f32 = 1e-6, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-7};

}  // namespace

constinit const OpDef kOp_bessel_i0 = Special({
    .name = "weft.bessel_i0",
    .c_name = "bessel_i0",
    .doc = "Elementwise modified Bessel function of the first kind of order 0.",
    .example = "y = wf_bessel_i0(s, x);",
    .gradient = GradientUnary<Other<kOp_bessel_i1>>,
    .expand = ExpandUnary<InDouble<I<0>>>,
    .samples = kGrowing,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_i1 = Special({
    .name = "weft.bessel_i1",
    .c_name = "bessel_i1",
    .doc = "Elementwise modified Bessel function of the first kind of order 1.",
    .example = "y = wf_bessel_i1(s, x);",
    .gradient = GradientUnary<LessQuotient<kOp_bessel_i0>>,
    .expand = ExpandUnary<InDouble<I<1>>>,
    .samples = kGrowing,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_j0 = Special({
    .name = "weft.bessel_j0",
    .c_name = "bessel_j0",
    .doc = "Elementwise Bessel function of the first kind of order 0; 0 at infinity.",
    .example = "y = wf_bessel_j0(s, x);",
    .gradient = GradientUnary<LessOther<kOp_bessel_j1>>,
    .expand = ExpandUnary<InDouble<J<0>>>,
    .samples = kBoth,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_j1 = Special({
    .name = "weft.bessel_j1",
    .c_name = "bessel_j1",
    .doc = "Elementwise Bessel function of the first kind of order 1; 0 at infinity.",
    .example = "y = wf_bessel_j1(s, x);",
    .gradient = GradientUnary<LessQuotient<kOp_bessel_j0>>,
    .expand = ExpandUnary<InDouble<J<1>>>,
    .samples = kBoth,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_y0 = Special({
    .name = "weft.bessel_y0",
    .c_name = "bessel_y0",
    .doc = "Elementwise Bessel function of the second kind of order 0; -inf at 0, NaN of negative numbers.",
    .example = "y = wf_bessel_y0(s, x);",
    .gradient = GradientUnary<LessOther<kOp_bessel_y1>>,
    .expand = ExpandUnary<InDouble<Y<0>>>,
    .samples = kAbove,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_y1 = Special({
    .name = "weft.bessel_y1",
    .c_name = "bessel_y1",
    .doc = "Elementwise Bessel function of the second kind of order 1; -inf at 0, NaN of negative numbers.",
    .example = "y = wf_bessel_y1(s, x);",
    .gradient = GradientUnary<Y1Slope>,
    .expand = ExpandUnary<InDouble<Y<1>>>,
    .samples = kAbove,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_k0 = Special({
    .name = "weft.bessel_k0",
    .c_name = "bessel_k0",
    .doc = "Elementwise modified Bessel function of the second kind of order 0; inf at 0, NaN of negative numbers.",
    .example = "y = wf_bessel_k0(s, x);",
    .gradient = GradientUnary<LessOther<kOp_bessel_k1>>,
    .expand = ExpandUnary<InDouble<K<0, false>>>,
    .samples = kAbove,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_k1 = Special({
    .name = "weft.bessel_k1",
    .c_name = "bessel_k1",
    .doc = "Elementwise modified Bessel function of the second kind of order 1; inf at 0, NaN of negative numbers.",
    .example = "y = wf_bessel_k1(s, x);",
    .gradient = GradientUnary<K1Slope>,
    .expand = ExpandUnary<InDouble<K<1, false>>>,
    .samples = kAbove,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_k0e = Special({
    .name = "weft.bessel_k0e",
    .c_name = "bessel_k0e",
    .doc = "Elementwise e^x times the modified Bessel function of the second kind of order 0.",
    .example = "y = wf_bessel_k0e(s, x);",
    .gradient = GradientUnary<K0eSlope>,
    .expand = ExpandUnary<InDouble<K<0, true>>>,
    .samples = kAbove,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_bessel_k1e = Special({
    .name = "weft.bessel_k1e",
    .c_name = "bessel_k1e",
    .doc = "Elementwise e^x times the modified Bessel function of the second kind of order 1.",
    .example = "y = wf_bessel_k1e(s, x);",
    .gradient = GradientUnary<K1eSlope>,
    .expand = ExpandUnary<InDouble<K<1, true>>>,
    .samples = kAbove,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
