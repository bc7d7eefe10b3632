// erf_inv: the inverse of the error function.
#include "src/ops/erf_inv.h"

#include <limits>

#include "src/ops/normal_quantile.h"
#include "src/ops/polynomial.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand in [-1, 1]"}};

// sqrt(pi) / 2 e^(y^2)
Value Derivative(Builder& b, const Value&, const Value& y) {
  return Mul(b, Exp(b, Square(b, y)), 0.88622692545275801365);
}

// M. Giles, Approximating the erfinv function, GPU Computing Gems (2010): in w = -log(1 - x^2), for w < 5 and
// above. Within 3e-7 in f32; (1 - x)(1 + x) keeps the digits that 1 - x^2 loses near 1 (6e-6 there).
constexpr double kCentral[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                               -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
constexpr double kTail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                            -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};

Value Single(Builder& b, const Value& x) {
  Value w = Neg(b, Log(b, Mul(b, Sub(b, 1, x), Add(b, x, 1))));
  Value central = Polynomial(b, Add(b, w, -2.5), kCentral);
  Value tail = Polynomial(b, Add(b, Sqrt(b, Maximum(b, w, FullLike(b, w, 5))), -3), kTail);
  return Mul(b, x, Select(b, Compare(b, Direction::kLt, w, 5), central, tail));
}

// M. Wichura, Algorithm AS 241: the percentage points of the normal distribution (1988), PPND16, whose argument
// p = (1 + x) / 2 is never formed: 1 - |x| is exact where it matters. Numerator and denominator each, highest power
// first; within 6e-16 of a 50-digit reference from 1e-30 to 1 - 1e-16.
constexpr double kNear[2][8] = {
    {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
     1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0},
    {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
     5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1}};
constexpr double kFar[2][8] = {
    {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
     3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0},
    {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1}};
constexpr double kFarthest[2][8] = {
    {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0},
    {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1}};

Value Ratio(Builder& b, const Value& x, const double (&fit)[2][8]) {
  return Div(b, Polynomial(b, x, fit[0]), Polynomial(b, x, fit[1]));
}

Value Double(Builder& b, const Value& x) {
  Value a = Abs(b, x);
  Value half = Mul(b, x, 0.5);
  Value near = Mul(b, half, Ratio(b, Sub(b, 0.180625, Square(b, half)), kNear));
  Value r = Sqrt(b, Neg(b, Log(b, Mul(b, Sub(b, 1, a), 0.5))));
  Value far =
      Select(b, Compare(b, Direction::kLe, r, 5), Ratio(b, Add(b, r, -1.6), kFar), Ratio(b, Add(b, r, -5), kFarthest));
  Value y = Select(b, Compare(b, Direction::kLe, a, 0.85), near, Mul(b, Unary(b, kOp_sign, x), far));
  return Mul(b, y, 0.70710678118654752440);
}

Value Expansion(Builder& b, const Value& x) {
  if (!x) return x;
  Value y = x.dtype() == DType::kF64 ? Double(b, x) : Single(b, x);
  Value edge = Compare(b, Direction::kEq, Abs(b, x), 1);
  return Select(b, edge, Mul(b, x, std::numeric_limits<double>::infinity()), y);
}

double Reference(double x) { return ErfInv(x); }

constexpr auto kSmooth = UnarySamples(-0.95, 0.95);
constexpr Sample kSamples[] = {kSmooth[0], kSmooth[1], kSmooth[2],
                               kSmooth[3], kSmooth[4], {"T[300]", -1.01, 1.01, false}};

}  // namespace

// The numerator of kNear less sqrt(2 pi) times the denominator: sqrt(2 pi) q is the larger part of the quantile, which the quotient
// of these corrects by a third at most.
constexpr double kNearLess[] = {-10591.799914467878, -38582.56302587065, -31264.51210175284, -7253.142677013087,
                                210.44949930412983,  249.0685673678939,  27.077876761339542, 0.8805045981653661};
// The numerators of kFar and kFarthest less 1.25 r and 1.375 r times the denominators, likewise.
constexpr double kFarLess[] = {-1.313437589555521e-09, 9.005065215378e-05,  0.002630324167749544,
                               0.026253421515867605,   0.11204113086603323, 0.1728326170632498,
                               -0.14976197220411483,   -0.7260454071189724, -0.5765628892503164};
constexpr double kFarthestLess[] = {-2.810861767161167e-15, 5.575559106408668e-09, 7.513894878290674e-07,
                                    3.378150773404395e-05,  0.0006688424750304365, 0.0060138766851451815,
                                    0.01866432455913676,    -0.0350615089076152,   -0.21709535649889622};
constexpr double kRootTwoPi = 2.5066282746310007, kRootTwoPiRest = -1.8328579980459167e-16;

Value NormalQuantile(Builder& b, const Value& p) {
  const Value lower = Compare(b, Direction::kLt, p, 0.5), share = Select(b, lower, p, Sub(b, 1, p));
  const Value q = Add(b, p, -0.5), within = Sub(b, 0.180625, Square(b, q));
  const Value quotient = Div(b, Polynomial(b, within, kNearLess), Polynomial(b, within, kNear[1]));
  const Value near = Add(b, Mul(b, q, kRootTwoPi), Mul(b, q, Add(b, quotient, kRootTwoPiRest)));
  const Value r = Sqrt(b, Neg(b, Log(b, share)));
  const auto line = [&](double slope, double from, std::span<const double> over, std::span<const double> under) {
    const Value off = Add(b, r, -from);
    return Add(b, Mul(b, r, slope), Div(b, Polynomial(b, off, over), Polynomial(b, off, under)));
  };
  const Value far = Select(b, Compare(b, Direction::kLe, r, 5), line(1.25, 1.6, kFarLess, kFar[1]),
                           line(1.375, 5, kFarthestLess, kFarthest[1]));
  const Value tail =
      Select(b, Compare(b, Direction::kEq, share, 0), FullLike(b, p, std::numeric_limits<double>::infinity()), far);
  const Value outer = Select(b, lower, Neg(b, tail), tail);
  return Select(b, Compare(b, Direction::kLe, Abs(b, q), 0.425), near, outer);
}

constinit const OpDef kOp_erf_inv = {
    .name = "weft.erf_inv",
    .c_name = "erf_inv",
    .kind = Kind::kComposite,
    .doc = "Elementwise inverse of the error function; infinite at -1 and 1, NaN outside.",
    .example = "y = wf_erf_inv(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kErfInv>,
    .reference = ReferenceUnary<Reference>,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 4e-15, .bf16 = 2e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
