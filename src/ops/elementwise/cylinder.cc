// Bessel functions of orders 0 and 1: j0 j1 y0 y1 i0 i1 k0 k1, and k0e k1e, which are k0 and k1 times e^x. All in f64.
#include <limits>
#include <numbers>
#include <span>
#include <vector>

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
// Where the power series of J and Y end and their waves begin, and where the power series of K ends.
constexpr double kLow = 2.1, kWaves = 7.9, kDecay = 1;

using Fit = std::span<const double>;

Value Sin(Builder& b, const Value& x) { return Unary(b, kOp_sin, x); }
Value Cos(Builder& b, const Value& x) { return Unary(b, kOp_cos, x); }
Value Quarter(Builder& b, const Value& x) { return Mul(b, Square(b, x), 0.25); }
Value Within(Builder& b, const Value& a, double size) { return Compare(b, Direction::kLe, a, size); }
Value Held(Builder& b, const Value& where, const Value& x, double otherwise) {
  return Select(b, where, x, FullLike(b, x, otherwise));
}

// From 7.9 on J and Y are sqrt(2 / (π x)) times a wave of cos and sin of x - π / 4 (order 1: x - 3 π / 4), DLMF 10.17.
template <int order, bool second>
Value Wave(Builder& b, const Value& a) {
  const Value w = Square(b, Div(b, kWaves, a));
  const Fit cosines = order == 0 ? Fit(kP0Far) : Fit(kP1Far);  // of which the last is 1
  const Value p = Mul(b, w, Polynomial(b, w, cosines.first(cosines.size() - 1)));
  const Value q = Div(b, Polynomial(b, w, order == 0 ? Fit(kQ0Far) : Fit(kQ1Far)), a);
  const Value sine = Sin(b, a), cosine = Cos(b, a);
  const Value sum = Add(b, sine, cosine), difference = Sub(b, sine, cosine);
  // Times sqrt(2): of order 0 cos is the sum and sin the difference; of order 1 cos is the difference and sin less the sum.
  const Value& c = order == 0 ? sum : difference;
  const Value s = order == 0 ? difference : Neg(b, sum);
  const Value& most = second ? s : c;
  const Value rest = second ? Add(b, Mul(b, p, s), Mul(b, q, c)) : Sub(b, Mul(b, p, c), Mul(b, q, s));
  const Value wave = Add(b, most, rest);
  const Value root = Sqrt(b, Mul(b, a, std::numbers::pi / 4));  // π a may be infinite
  return Select(b, Compare(b, Direction::kEq, a, kInf), FullLike(b, a, 0), Div(b, Mul(b, wave, 0.5), root));
}

// The power series up to 2.1, its terms times a factor; of order 1 over x.
template <int order>
Value LowJ(Builder& b, const Value& low, double factor) {
  const Fit terms = order == 0 ? Fit(kJ0Low) : Fit(kJ1Low);
  std::vector<double> scaled(terms.begin(), terms.end());
  for (double& term : scaled) term *= factor;
  return Polynomial(b, Quarter(b, low), scaled);
}

// The function of a from its parts, of which the middle one is a fit in (a - 5) 11 / 32: no digits are lost in that.
Value Joined(Builder& b, const Value& a, const Value& low, Fit middle, const Value& far) {
  const Value between = Held(b, And(b, Compare(b, Direction::kGt, a, kLow), Within(b, a, kWaves)), a, 5);
  const Value fit = ChebyshevSeries(b, Mul(b, Add(b, between, -5), 11.0 / 32), middle);
  return Select(b, Within(b, a, kLow), low, Select(b, Within(b, a, kWaves), fit, far));
}

template <int order>
Value J(Builder& b, const Value& x) {
  const Value a = Abs(b, x), held = Held(b, Within(b, a, kLow), a, 1);
  Value low = LowJ<order>(b, held, 1);
  if (order == 1) low = Mul(b, held, low);
  const Value far = Wave<order, false>(b, Held(b, Compare(b, Direction::kGt, a, kWaves), a, 9));
  Value y = Joined(b, a, low, order == 0 ? Fit(kJ0Middle) : Fit(kJ1Middle), far);
  if (order == 1) y = Mul(b, Unary(b, kOp_sign, x), y);
  return Select(b, IsNan(b, x), x, y);
}

template <int order>
Value Y(Builder& b, const Value& x) {
  const Value above = Compare(b, Direction::kGt, x, 0);
  const Value held = Held(b, And(b, above, Within(b, x, kLow)), x, 1);
  const Value log = Mul(b, Log(b, held), LowJ<order>(b, held, 2 * std::numbers::inv_pi));
  const Value rest = Polynomial(b, Quarter(b, held), order == 0 ? Fit(kY0Low) : Fit(kY1Low));
  Value low = Add(b, log, rest);
  if (order == 1) low = Sub(b, Mul(b, held, low), Div(b, 2 * std::numbers::inv_pi, held));
  const Value far = Wave<order, true>(b, Held(b, Compare(b, Direction::kGt, x, kWaves), x, 9));
  const Value y = Joined(b, x, low, order == 0 ? Fit(kY0Middle) : Fit(kY1Middle), far);
  const Value end = Held(b, Compare(b, Direction::kEq, x, 0), FullLike(b, x, -kInf), kNan);
  return Select(b, above, y, end);
}

template <int order>
Value I(Builder& b, const Value& x) {
  return ModifiedBessel(b, x, order, false);
}

// Up to 1 by power series, of whose terms those of order 0 are all positive; DLMF 10.31. So many terms of I suffice there.
constexpr size_t kTermsOfI = 11;

template <int order, bool scaled>
Value K(Builder& b, const Value& x) {
  const Value near = Within(b, x, kDecay), above = Compare(b, Direction::kGt, x, 0);
  const Value held = Held(b, And(b, near, above), x, 1), quarter = Quarter(b, held);
  const Value rest = Polynomial(b, quarter, order == 0 ? Fit(kK0Low) : Fit(kK1Low));
  const Value other = Polynomial(b, quarter, (order == 0 ? Fit(kI0Near) : Fit(kI1Near)).last(kTermsOfI));
  const Value log = Log(b, held);
  const Value product = Mul(b, log, other);
  Value small = Sub(b, rest, product);
  if (order == 1) small = Div(b, Sub(b, 1, Mul(b, Square(b, held), small)), held);
  const Value beyond = Held(b, Compare(b, Direction::kGt, x, kDecay), x, 3);
  const Value fit = Polynomial(b, Add(b, Div(b, 2, beyond), -1), order == 0 ? Fit(kK0Far) : Fit(kK1Far));
  Value far = Div(b, fit, Sqrt(b, beyond));
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
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
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
