// asin, acos, atan, by atan2.
#include "src/ops/elementwise/special.h"
#include "src/ops/hyperbolic.h"

namespace weft::ops {
namespace {

using namespace ir;

// atan2(sqrt((1 - x)(1 + x)), x): no cancellation near 1.
Value Leg(Builder& b, const Value& x) { return Sqrt(b, Mul(b, Sub(b, 1, x), Add(b, x, 1))); }
Value Acos(Builder& b, const Value& x) { return Call(b, kOp_atan2, {Leg(b, x), x}); }
Value Asin(Builder& b, const Value& x) { return Call(b, kOp_atan2, {x, Leg(b, x)}); }
Value Atan(Builder& b, const Value& x) { return Call(b, kOp_atan2, {x, FullLike(b, x, 1)}); }

// 1 / sqrt(1 - x²): the value by (1 - x)(1 + x), which keeps its digits near 1, the slopes by 1 - x², which have no 0 times infinity there.
Value AsinSlope(Builder& b, const Value& x, const Value&) {
  const auto still = [&](const Value& value) { return Unary(b, kOp_stop_gradient, value); };
  const Value exact = Mul(b, Sub(b, 1, x), Add(b, x, 1)), smooth = Sub(b, 1, Square(b, x));
  return Rsqrt(b, Add(b, still(exact), Sub(b, smooth, still(smooth))));
}
Value AcosSlope(Builder& b, const Value& x, const Value& y) { return Neg(b, AsinSlope(b, x, y)); }
Value AtanSlope(Builder& b, const Value& x, const Value&) {
  const BySize by(b, x, LargeRoot(x));
  return Select(b, by.far, Square(b, Div(b, 1, by.beyond)), Div(b, 1, Add(b, Square(b, by.within), 1)));
}

// Slopes of complex numbers.
Value AsinOf(Builder& b, const Value& x) { return Rsqrt(b, Sub(b, 1, Square(b, x))); }
Value AcosOf(Builder& b, const Value& x) { return Neg(b, AsinOf(b, x)); }
Value AtanOf(Builder& b, const Value& x) { return Div(b, 1, Add(b, Square(b, x), 1)); }

constexpr auto kInside = UnarySamples(-0.9, 0.9), kAll = UnarySamples(-3, 3);
constexpr Tolerance kTolerance = {.f32 = 4e-6, .f64 = 1e-14, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-6};

}  // namespace

constinit const OpDef kOp_asin = Special({
    .name = "weft.asin",
    .c_name = "asin",
    .doc = "Elementwise arc sine in [-pi / 2, pi / 2]; NaN outside of [-1, 1].",
    .example = "y = wf_asin(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<AsinSlope, AsinOf>,
    .expand = ExpandAnywhere<Asin, ComplexAsin>,
    .samples = kInside,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_acos = Special({
    .name = "weft.acos",
    .c_name = "acos",
    .doc = "Elementwise arc cosine in [0, pi]; NaN outside of [-1, 1].",
    .example = "y = wf_acos(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<AcosSlope, AcosOf>,
    .expand = ExpandAnywhere<Acos, ComplexAcos>,
    .samples = kInside,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_atan = Special({
    .name = "weft.atan",
    .c_name = "atan",
    .doc = "Elementwise arc tangent in [-pi / 2, pi / 2].",
    .example = "y = wf_atan(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<AtanSlope, AtanOf>,
    .expand = ExpandAnywhere<Atan, ComplexAtan>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
