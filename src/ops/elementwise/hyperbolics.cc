// sinh, cosh, asinh, acosh, atanh.
#include <limits>
#include <numbers>

#include "src/ops/elementwise/special.h"
#include "src/ops/hyperbolic.h"

namespace weft::ops {
namespace {

using namespace ir;

// log(x + sqrt(x² - 1)), by x - 1 where x is near 1 and without the square where that is too large.
Value Acosh(Builder& b, const Value& x) {
  const Value d = Add(b, x, -1);
  const Value near = Unary(b, kOp_log1p, Add(b, d, Sqrt(b, Mul(b, d, Add(b, x, 1)))));
  const Value far = Add(b, Log(b, x), std::numbers::ln2);
  const Value inside = Select(b, Compare(b, Direction::kGt, x, LargeRoot(x)), far, near);
  return Select(b, Compare(b, Direction::kLt, x, 1), FullLike(b, x, std::numeric_limits<double>::quiet_NaN()), inside);
}

Value Atanh(Builder& b, const Value& x) {
  const Value a = Abs(b, x);
  // log1p(2 a / (1 - a)) / 2
  const Value half = Mul(b, Unary(b, kOp_log1p, Div(b, Mul(b, a, 2), Sub(b, 1, a))), 0.5);
  const Value inside = Mul(b, Unary(b, kOp_sign, x), half);
  return Select(b, Compare(b, Direction::kGt, a, 1), FullLike(b, x, std::numeric_limits<double>::quiet_NaN()), inside);
}

Value SinhSlope(Builder& b, const Value& x, const Value&) { return Unary(b, kOp_cosh, x); }
Value CoshSlope(Builder& b, const Value& x, const Value&) { return Unary(b, kOp_sinh, x); }
// 1 / sqrt(x² + 1)
Value AsinhSlope(Builder& b, const Value& x, const Value&) {
  const BySize by(b, x, LargeRoot(x));
  return Select(b, by.far, Div(b, 1, Abs(b, by.beyond)), Rsqrt(b, Add(b, Square(b, by.within), 1)));
}
Value AcoshSlope(Builder& b, const Value& x, const Value&) {
  return Mul(b, Rsqrt(b, Add(b, x, -1)), Rsqrt(b, Add(b, x, 1)));
}
// 1 / (1 - x²) in two parts: at an end one of them is infinite, and so are the slopes of it alone.
Value AtanhSlope(Builder& b, const Value& x, const Value&) {
  return Mul(b, Add(b, Div(b, 1, Sub(b, 1, x)), Div(b, 1, Add(b, x, 1))), 0.5);
}

// Slopes of complex numbers.
Value SinhOf(Builder& b, const Value& x) { return Unary(b, kOp_sinh, x); }
Value CoshOf(Builder& b, const Value& x) { return Unary(b, kOp_cosh, x); }
Value AsinhOf(Builder& b, const Value& x) { return Rsqrt(b, Add(b, Square(b, x), 1)); }
Value AcoshOf(Builder& b, const Value& x) { return AcoshSlope(b, x, x); }
Value AtanhOf(Builder& b, const Value& x) { return AtanhSlope(b, x, x); }

constexpr auto kAll = UnarySamples(-3, 3), kInside = UnarySamples(-0.9, 0.9), kAbove = UnarySamples(1.1, 5);
constexpr Tolerance kTolerance = {.f32 = 4e-6, .f64 = 1e-14, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-6};

}  // namespace

constinit const OpDef kOp_sinh = Special({
    .name = "weft.sinh",
    .c_name = "sinh",
    .doc = "Elementwise hyperbolic sine.",
    .example = "y = wf_sinh(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<SinhSlope, CoshOf>,
    .expand = ExpandAnywhere<Sinh, ComplexSinh>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_cosh = Special({
    .name = "weft.cosh",
    .c_name = "cosh",
    .doc = "Elementwise hyperbolic cosine.",
    .example = "y = wf_cosh(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<CoshSlope, SinhOf>,
    .expand = ExpandAnywhere<Cosh, ComplexCosh>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_asinh = Special({
    .name = "weft.asinh",
    .c_name = "asinh",
    .doc = "Elementwise inverse hyperbolic sine.",
    .example = "y = wf_asinh(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<AsinhSlope, AsinhOf>,
    .expand = ExpandAnywhere<Asinh, ComplexAsinh>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_acosh = Special({
    .name = "weft.acosh",
    .c_name = "acosh",
    .doc = "Elementwise inverse hyperbolic cosine; NaN below 1.",
    .example = "y = wf_acosh(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<AcoshSlope, AcoshOf>,
    .expand = ExpandAnywhere<Acosh, ComplexAcosh>,
    .samples = kAbove,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_atanh = Special({
    .name = "weft.atanh",
    .c_name = "atanh",
    .doc = "Elementwise inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.",
    .example = "y = wf_atanh(s, x);",
    .operands = kRealOrComplex,
    .gradient = GradientAnywhere<AtanhSlope, AtanhOf>,
    .expand = ExpandAnywhere<Atanh, ComplexAtanh>,
    .samples = kInside,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
