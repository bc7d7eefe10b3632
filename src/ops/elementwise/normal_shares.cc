// erfcx, and the distribution function of the normal distribution, its logarithm and its inverse: ndtr, log_ndtr, ndtri. All in f64.
#include <limits>
#include <numbers>

#include "src/ops/elementwise/in_double.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"
#include "src/ops/normal_quantile.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr double kRootTwo = std::numbers::sqrt2, kInvRootPi = std::numbers::inv_sqrtpi;

// e^(a² / 2) times the share beyond a >= 0, as erfcx: by (1 + 0.75 a) times it, which has nearly no slope at 0.
Value ScaledTail(Builder& b, const Value& a) {
  const Value t = Sub(b, 1, Div(b, 10, Add(b, a, 5)));
  return Div(b, Polynomial(b, t, kNormalTail), Add(b, Mul(b, a, 0.75), 1));
}
// e^(-a² / 2), 0 from 40 on.
Value TailBell(Builder& b, const Value& a) { return ExpOfSquare(b, Minimum(b, a, FullLike(b, a, 40)), -0.5); }
Value Ndtr(Builder& b, const Value& x) {
  const Value a = Abs(b, x), tail = Mul(b, ScaledTail(b, a), TailBell(b, a));
  return Select(b, Compare(b, Direction::kLt, x, 0), tail, Sub(b, 1, tail));
}
Value LogNdtr(Builder& b, const Value& x) {
  const Value a = Abs(b, x), scaled = ScaledTail(b, a);
  const Value low = Sub(b, Log(b, scaled), Mul(b, Mul(b, a, 0.5), a));
  const Value high = Unary(b, kOp_log1p, Neg(b, Mul(b, scaled, TailBell(b, a))));
  return Select(b, Compare(b, Direction::kLt, x, 0), low, high);
}

// 2 x erfcx(x) - 2 / sqrt(π), whose terms cancel where x is large: there by the series of erfcx, DLMF 7.12.1.
Value ErfcxSlope(Builder& b, const Value& given, const Value&) {
  const Value x = Convert(b, given, DType::kF64);
  if (!x) return x;
  const Value far = Compare(b, Direction::kGt, x, 200);
  const Value near = Select(b, far, FullLike(b, x, 0), x),
              beyond = Minimum(b, Select(b, far, x, FullLike(b, x, 200)), FullLike(b, x, 1e60));
  const Value plain = Add(b, Mul(b, Mul(b, near, Unary(b, kOp_erfcx, near)), 2), -2 * kInvRootPi);
  const Value inverse = Div(b, 1, Square(b, beyond));
  constexpr double kTerms[] = {105.0 / 8, -15.0 / 4, 3.0 / 2, -1};
  const Value series = Mul(b, Mul(b, inverse, Polynomial(b, inverse, kTerms)), kInvRootPi);
  return Convert(b, Select(b, far, series, plain), given.dtype());
}

// e^(-x² / 2) / sqrt(2 π); 0 at infinity.
Value Density(Builder& b, const Value& x) {
  const Value held = Held(b, x, 1e3);
  return Mul(b, Exp(b, Mul(b, Square(b, held), -0.5)), kInvRootPi / kRootTwo);
}
Value NdtrSlope(Builder& b, const Value& x, const Value&) { return Density(b, x); }
Value NdtriSlope(Builder& b, const Value&, const Value& y) {
  return Mul(b, Exp(b, Mul(b, Square(b, y), 0.5)), kRootTwo / kInvRootPi);
}
// The density over the share: of negative numbers both have the same factor, which goes.
Value LogNdtrSlope(Builder& b, const Value& x, const Value&) {
  const Value left = Compare(b, Direction::kLt, x, 0);
  const Value low = Select(b, left, x, FullLike(b, x, -1)), high = Select(b, left, FullLike(b, x, 0), x);
  const Value ratio = Div(b, kRootTwo * kInvRootPi, Unary(b, kOp_erfcx, Mul(b, low, -1 / kRootTwo)));
  return Select(b, left, ratio, Div(b, Density(b, high), Unary(b, kOp_ndtr, high)));
}

constexpr Sample kAnywhere[] = {{"T[2,3]", -3, 3}, {"T[]", 3, 6, false}, {"T[0,3]", 1, 2}, {"T[131]", -3, 9}};
constexpr Sample kShares[] = {
    {"T[2,3]", 0.05, 0.95}, {"T[]", 0.01, 0.02, false}, {"T[0,3]", 0.1, 0.2, false}, {"T[131]", 0.02, 0.98}};
constexpr Tolerance kTolerance = {.f32 = 2e-6, .f64 = 2e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-7};

}  // namespace

constinit const OpDef kOp_erfcx = Special({
    .name = "weft.erfcx",
    .c_name = "erfcx",
    .doc = "Elementwise scaled complementary error function e^(x²) erfc(x).",
    .example = "y = wf_erfcx(s, x);",
    .gradient = GradientUnary<ErfcxSlope>,
    .expand = ExpandUnary<InDouble<ErfcxOf>>,
    .samples = kAnywhere,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_ndtr = Special({
    .name = "weft.ndtr",
    .c_name = "ndtr",
    .doc = "Elementwise share of the standard normal distribution below x, to full accuracy where that is small.",
    .example = "p = wf_ndtr(s, x);",
    .gradient = GradientUnary<NdtrSlope>,
    .expand = ExpandUnary<InDouble<Ndtr>>,
    .samples = kAnywhere,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_log_ndtr = Special({
    .name = "weft.log_ndtr",
    .c_name = "log_ndtr",
    .doc = "Elementwise logarithm of the share of the standard normal distribution below x, also where that is 0.",
    .example = "y = wf_log_ndtr(s, x);",
    .gradient = GradientUnary<LogNdtrSlope>,
    .expand = ExpandUnary<InDouble<LogNdtr>>,
    .samples = kAnywhere,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_ndtri = Special({
    .name = "weft.ndtri",
    .c_name = "ndtri",
    .doc =
        "Elementwise inverse of ndtr: below which number so large a share of the standard normal distribution lies; -inf "
        "of 0, inf of 1, NaN outside. Source: Wichura, AS 241 (1988).",
    .example = "x = wf_ndtri(s, p);",
    .gradient = GradientUnary<NdtriSlope>,
    .expand = ExpandUnary<InDouble<NormalQuantile>>,
    .samples = kShares,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
