// lgamma, digamma, polygamma and Hurwitz's zeta function.
#include <cmath>
#include <limits>
#include <numbers>

#include "src/ir/rewrite.h"
#include "src/ops/elementwise/in_double.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"
#include "src/ops/nan.h"
#include "src/ops/parameter.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kPi = std::numbers::pi;

Value Floor(Builder& b, const Value& x) { return Unary(b, kOp_floor, x); }
Value Power(Builder& b, const Value& x, const Value& y) { return Call(b, kOp_pow, {x, y}); }
Value IsInteger(Builder& b, const Value& x) { return Compare(b, Direction::kEq, x, Floor(b, x)); }

// 1 of an odd number, 0 of an even one, NaN of an infinite one.
Value Odd(Builder& b, const Value& x) { return Sub(b, x, Mul(b, Floor(b, Mul(b, x, 0.5)), 2)); }

// B_2k / (2k)! for k = 12, 11, … 1, as reciprocals.
constexpr double kBernoulli[] = {-7.1661652561756670113e18,
                                 1.8152105401943546773e17,
                                 -4.5979787224074726105e15,
                                 1.1646782814350067249e14,
                                 -2.950130727918164224e12,
                                 7.47242496e10,
                                 -1.8924375803183791606e9,
                                 47900160.0,
                                 -1209600.0,
                                 30240.0,
                                 -720.0,
                                 12.0};

// Terms B_2k / (2k (2k - 1)) of Stirling's series and B_2k / 2k of the digamma function's, the last power first: within 1e-17 of the
// results from 8 and from 10 on.
constexpr double kStirling[] = {-3617.0 / 122400, 1.0 / 156,  -691.0 / 360360, 1.0 / 1188,
                                -1.0 / 1680,      1.0 / 1260, -1.0 / 360,      1.0 / 12};
constexpr double kDigammaTerms[] = {43867.0 / 14364, -3617.0 / 8160, 1.0 / 12,   -691.0 / 32760, 1.0 / 132,
                                    -1.0 / 240,      1.0 / 252,      -1.0 / 120, 1.0 / 12};

Value Below(Builder& b, const Value& x, double y) { return Compare(b, Direction::kLt, x, y); }
Value Round(Builder& b, const Value& x) { return Unary(b, kOp_round, x); }

// log Γ(a) of a >= 0; of a below 1, where `next` is so, that of a + 1. From 1 to 3 by a fit that has the zeros at 1 and 2 as factors,
// to 8 by the recurrence, from there on by Stirling's series, DLMF 5.11.1.
Value LgammaAbove(Builder& b, const Value& a, bool next) {
  const Value under = Below(b, a, 1), few = Below(b, a, 3), some = Below(b, a, 8);
  // y in [1, 3) by its distances from 1 and 2, which are exact.
  const Value less = Select(b, some, Sub(b, a, Floor(b, a)), FullLike(b, a, 0));
  const Value from_two = Select(b, under, Add(b, a, -1), Select(b, few, Add(b, a, -2), less));
  const Value from_one = Select(b, under, a, Select(b, few, Add(b, a, -1), Add(b, less, 1)));
  const Value fit = Mul(b, Mul(b, from_one, from_two), Polynomial(b, from_two, kLgamma));
  Value product = FullLike(b, a, 1);
  for (int k = 1; k <= 5; ++k) {
    const Value factor = Add(b, a, -k);
    product = Mul(b, product, Select(b, Below(b, factor, 2), FullLike(b, a, 1), factor));
  }
  const Value log = Log(b, Select(b, under, a, Select(b, some, product, a)));
  const Value near = Select(b, under, next ? fit : Sub(b, fit, log), Add(b, fit, log));
  const Value inverse = Div(b, 1, a);
  const Value series = Mul(b, inverse, Polynomial(b, Square(b, inverse), kStirling));
  const Value rest = Add(b, series, std::log(2 * kPi) / 2 - 0.5);
  const Value far = Add(b, Mul(b, Add(b, a, -0.5), Add(b, log, -1)), rest);
  return Select(b, some, near, far);
}

// x < 0 goes by the reflection log(pi / |x sin(pi x)|) - lgamma(-x), above -1 by log(pi / |sin(pi x)|) - lgamma(1 - x).
Value Lgamma(Builder& b, const Value& x) {
  const Value a = Abs(b, x), negative = Below(b, x, 0);
  const Value right = LgammaAbove(b, a, false);
  const Value share = Mul(b, Unary(b, kOp_sin, Mul(b, Abs(b, Sub(b, a, Round(b, a))), kPi)), 1 / kPi);
  const Value near = Select(b, Below(b, a, 1e-17), a, share);  // the sine of the least numbers has few digits
  const Value under = Below(b, a, 1);
  const Value whole = Log(b, Select(b, under, near, Mul(b, a, share)));
  const Value pole = Compare(b, Direction::kEq, whole, -kInf);
  const Value left = Neg(b, Add(b, whole, Select(b, pole, FullLike(b, a, 0), LgammaAbove(b, a, true))));
  return Select(b, Compare(b, Direction::kEq, a, kInf), FullLike(b, x, kInf), Select(b, negative, left, right));
}

// The digamma function of x > 0: on [1, 2) by a fit that has the zero as a factor, to 10 by the recurrence, from there on by its
// asymptotic series, DLMF 5.11.2. `lost` is what x has lost by rounding, which shows near the zero.
Value DigammaAbove(Builder& b, const Value& x, const Value& lost) {
  const Value under = Below(b, x, 1), few = Below(b, x, 10);
  const Value held = Select(b, few, x, FullLike(b, x, 1.5));
  const Value y = Select(b, under, Add(b, held, 1), Add(b, Sub(b, held, Floor(b, held)), 1));
  const Value distance = Add(b, Add(b, y, -kDigammaZero), Add(b, lost, -kDigammaZeroRest));
  const Value fit = Mul(b, distance, Polynomial(b, Add(b, Mul(b, y, 2), -3), kDigamma)), inverse = Div(b, 1, x);
  Value sum = FullLike(b, x, 0);
  for (int k = 1; k <= 8; ++k) {
    const Value term = Add(b, held, -k);
    const Value counts = Compare(b, Direction::kGe, term, 1);
    sum = Add(b, sum, Select(b, counts, Div(b, 1, Select(b, counts, term, FullLike(b, x, 1))), FullLike(b, x, 0)));
  }
  const Value near = Add(b, fit, Select(b, under, Neg(b, inverse), sum));
  const Value square = Square(b, inverse), series = Mul(b, square, Polynomial(b, square, kDigammaTerms));
  const Value far = Sub(b, Sub(b, Log(b, x), Mul(b, inverse, 0.5)), series);
  return Select(b, few, near, far);
}

// x < 0 goes by the reflection digamma(1 - x) - pi / tan(pi x).
Value Digamma(Builder& b, const Value& x) {
  const Value negative = Below(b, x, 0);
  const Value mirror = Sub(b, 1, x), lost = Sub(b, Sub(b, 1, mirror), x), none = FullLike(b, x, 0);
  const Value right = DigammaAbove(b, Select(b, negative, mirror, x), Select(b, negative, lost, none));
  // The cotangent of a quarter turn and more is the tangent of the rest, which is near 0 there.
  const Value off = Sub(b, x, Round(b, x)), size = Abs(b, off), steep = Below(b, size, 0.25);
  const Value angle = Mul(b, Select(b, steep, size, Sub(b, 0.5, size)), kPi);
  const Value tangent = Unary(b, kOp_tan, angle),
              quotient = Select(b, steep, Div(b, kPi, tangent), Mul(b, tangent, kPi));
  const Value cotangent = Select(b, Below(b, off, 0), Neg(b, quotient), quotient);
  const Value any = Select(b, negative, Sub(b, right, cotangent), right);
  const Value pole = And(b, Compare(b, Direction::kLe, x, 0), IsInteger(b, x));
  return Select(b, pole, FullLike(b, x, kNan), any);
}

// Ten terms, then Euler's and Maclaurin's formula for the rest: the sum where it is one.
Value ZetaSum(Builder& b, const Value& x, const Value& q) {
  const Value negative = Neg(b, x);
  Value sum = Power(b, q, negative), a = q, power;
  for (int i = 0; i < 9; ++i) {
    a = Add(b, a, 1);
    sum = Add(b, sum, Power(b, a, negative));
  }
  a = Add(b, a, 1);
  power = Power(b, a, negative);
  const Value inverse = Div(b, 1, Mul(b, a, a));
  Value rest = FullLike(b, x, 1 / kBernoulli[0]);
  for (size_t i = 1; i < std::size(kBernoulli); ++i) {
    const auto k = static_cast<double>(std::size(kBernoulli) - i);
    const Value factor = Mul(b, Add(b, x, 2 * k - 1), Add(b, x, 2 * k));
    rest = Add(b, Mul(b, Mul(b, factor, inverse), rest), 1 / kBernoulli[i]);
  }
  const Value tail = Add(b, Add(b, Div(b, a, Add(b, x, -1)), Mul(b, Div(b, x, a), rest)), 0.5);
  // The remainder is nothing where its first power is 0, even where the tail is infinite.
  return Select(b, Compare(b, Direction::kEq, power, 0), sum, Add(b, sum, Mul(b, power, tail)));
}

// Terms below 0, which a q below 0 has, are those of their sizes, up to the sign: zeta(x, distance to the next integer) less
// zeta(x, 1 - q). The rest begins at the fraction of q.
Value Zeta(Builder& b, const Value& x, const Value& q) {
  const Value below = Compare(b, Direction::kLt, q, 0);
  const Value next = Select(b, below, Sub(b, Unary(b, kOp_ceil, q), q), FullLike(b, q, 0.5));
  const Value last = Select(b, below, Sub(b, 1, q), FullLike(b, q, 1));
  const Value rest = ZetaSum(b, x, Select(b, below, Sub(b, q, Floor(b, q)), q));
  const Value sizes = Sub(b, ZetaSum(b, x, next), ZetaSum(b, x, last));
  const Value sign = Sub(b, 1, Mul(b, Odd(b, x), 2));
  Value result = Select(b, below, Add(b, rest, Mul(b, sign, sizes)), rest);
  const Value pole = And(b, Compare(b, Direction::kLe, q, 0), IsInteger(b, q));
  const Value complex = And(b, Compare(b, Direction::kLe, q, 0), Compare(b, Direction::kNe, x, Floor(b, x)));
  // At a pole both sides agree only where x is even.
  const Value even = Compare(b, Direction::kEq, Odd(b, x), 0);
  result = Select(b, Either(b, Compare(b, Direction::kLt, x, 1), complex), FullLike(b, x, kNan), result);
  result = Select(b, pole, Select(b, even, FullLike(b, x, kInf), FullLike(b, x, kNan)), result);
  return Select(b, Compare(b, Direction::kEq, x, 1), FullLike(b, x, kInf), result);
}

// (-1)^(n + 1) n! zeta(n + 1, x); of n = 0 digamma.
Value Polygamma(Builder& b, const Value& n, const Value& x) {
  const Value next = Add(b, n, 1);
  const Value sign = Add(b, Mul(b, Odd(b, n), 2), -1);
  const Value high = Mul(b, Mul(b, sign, Exp(b, Unary(b, kOp_lgamma, next))), Call(b, kOp_zeta, {next, x}));
  const Value result = Select(b, Compare(b, Direction::kEq, n, 0), Unary(b, kOp_digamma, x), high);
  const Value wrong = Either(b, Compare(b, Direction::kLt, n, 0), Compare(b, Direction::kNe, n, Floor(b, n)));
  return Select(b, wrong, FullLike(b, x, kNan), result);
}

Value LgammaSlope(Builder& b, const Value& x, const Value&) { return Unary(b, kOp_digamma, x); }

Value PolygammaOf(Builder& b, double n, const Value& x) { return Call(b, kOp_polygamma, {FullLike(b, x, n), x}); }

// polygamma(1, x), and of x < 1/2 by the reflection pi² / sin²(pi x) - polygamma(1, 1 - x): its sums begin at x.
Value DigammaSlope(Builder& b, const Value& x, const Value&) {
  const Value reflect = Compare(b, Direction::kLt, x, 0.5);
  const Value right = PolygammaOf(b, 1, Select(b, reflect, Sub(b, 1, x), x));
  const Value off = Sub(b, x, Unary(b, kOp_round, x));  // from the nearest integer
  const Value sine = Unary(b, kOp_sin, Mul(b, Select(b, reflect, off, FullLike(b, x, 0.25)), kPi));
  return Select(b, reflect, Sub(b, Mul(b, Div(b, 1, Square(b, sine)), kPi * kPi), right), right);
}

// Between the integers n there is nothing to differentiate.
absl::Status PolygammaGradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &n = call.operands[0], &x = call.operands[1], &g = call.cotangents[0];
  if (call.wanted[0]) grads[0] = Mul(b, g, FullLike(b, n, kNan));
  if (call.wanted[1]) grads[1] = Mul(b, g, Call(b, kOp_polygamma, {Add(b, n, 1), x}));
  return absl::OkStatus();
}

// Along q -x zeta(x + 1, q); along x that of the sum, term by term. Of q below 0 there is only whole x.
absl::Status ZetaGradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &q = call.operands[1], &g = call.cotangents[0];
  if (call.wanted[0]) {
    const Value p[] = {Parameter(x.type()), Parameter(q.type())};
    Builder inner;
    const Ref<const Function> sum = Function::Create("zeta", {p[0], p[1]}, {ZetaSum(inner, p[0], p[1])});
    WEFT_RETURN_IF_ERROR(inner.status());
    const bool along_x[] = {true, false};
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> slope, call.region_gradient(*sum, std::span<const bool>(along_x)));
    const Value found = Inline(*slope, std::vector<Value>{x, q, g})[0];
    const Value there = And(b, Unary(b, kOp_is_finite, call.results[0]), Compare(b, Direction::kGt, q, 0));
    grads[0] = Select(b, there, found, NoSlope(b, Call(b, kOp_bitwise_not, {there}), g));
  }
  if (call.wanted[1]) grads[1] = Mul(b, g, Neg(b, Mul(b, x, Call(b, kOp_zeta, {Add(b, x, 1), q}))));
  return absl::OkStatus();
}

// Σ lgamma(x - j / 2), j from 0 to p - 1, and a constant, in f64, as they cancel; NaN where x is not above (p - 1) / 2.
constexpr AttrDef kDimensions[] = {{"p", AttrType::kInt, "dimension, 1 to 1000", true}};
absl::Status InferMvlgamma(const InferCall& call, Types* results) {
  const int64_t p = Attr<kDimensions, "p">(call.attrs);
  if (p < 1 || p > 1000) return UserError("p is ", p, "; it must be 1 to 1000");
  return InferSame(call, results);
}
absl::Status ExpandMvlgamma(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = Convert(b, call.operands[0], DType::kF64);
  const auto p = static_cast<double>(Attr<kDimensions, "p">(call.attrs));
  Value sum = FullLike(b, x, p * (p - 1) / 4 * std::log(kPi));
  for (double j = 0; j < p; ++j) sum = Add(b, sum, Unary(b, kOp_lgamma, Add(b, x, -j / 2)));
  const Value y = Select(b, Compare(b, Direction::kGt, x, (p - 1) / 2), sum, FullLike(b, x, kNan));
  results[0] = Convert(b, y, call.operands[0].dtype());
  return absl::OkStatus();
}

constexpr OperandDef kOrders[] = {{"n", kF, "order, a whole number from 0 on"}, {"x", kF, "operand"}};
constexpr OperandDef kExponents[] = {{"x", kF, "exponent, above 1"}, {"q", kF, "where the sum begins"}};
constexpr auto kPositive = UnarySamples(0.3, 4);
constexpr Sample kMultivariate[] = {
    {"T[2,3] p=2", 0.7, 4}, {"T[] p=3", 1.2, 4}, {"T[0,3] p=1"}, {"T[131] p=4", 1.7, 9}};
constexpr Sample kSums[] = {
    {"T[2,3] T[2,3]", 1.5, 4}, {"T[] T[]", 1.5, 4}, {"T[0,3] T[0,3]", 1.5, 4}, {"T[131] T[131]", 1.5, 4}};
// Orders are whole numbers, of whose neighbours the result is NaN: of this alone no differences judge the gradient.
constexpr Sample kWhole[] = {{"f32[2,3] f32[2,3]", 2, 2, false},
                             {"f64[2,3] f64[2,3]", 2, 2, false},
                             {"f64[] f64[]", 2, 2, false},
                             {"f32[0,3] f32[0,3]", 2, 2, false}};
constexpr Tolerance kTolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 2e-6};

}  // namespace

constinit const OpDef kOp_lgamma = Special({
    .name = "weft.lgamma",
    .c_name = "lgamma",
    .doc = "Elementwise logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ….",
    .example = "y = wf_lgamma(s, x);",
    .gradient = GradientUnary<LgammaSlope>,
    .expand = ExpandUnary<InDouble<Lgamma>>,
    .samples = kPositive,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_digamma = Special({
    .name = "weft.digamma",
    .c_name = "digamma",
    .doc = "Elementwise derivative of lgamma; NaN at 0, -1, -2, ….",
    .example = "y = wf_digamma(s, x);",
    .gradient = GradientUnary<DigammaSlope>,
    .expand = ExpandUnary<InDouble<Digamma>>,
    .samples = kPositive,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_polygamma = Special({
    .name = "weft.polygamma",
    .c_name = "polygamma",
    .doc =
        "Elementwise derivative of digamma of order n, a whole number; NaN of others. Along n there is no derivative: NaN.",
    .example = "y = wf_polygamma(s, n, x);",
    .operands = kOrders,
    .rule = OperandRule::kBroadcast,
    .gradient = PolygammaGradient,
    .expand = ExpandBinary<Polygamma>,
    .samples = kWhole,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_zeta = Special({
    .name = "weft.zeta",
    .c_name = "zeta",
    .doc = "Elementwise zeta function of Hurwitz, the sum over k >= 0 of (q + k)^-x.",
    .example = "y = wf_zeta(s, x, q);",
    .operands = kExponents,
    .rule = OperandRule::kBroadcast,
    .gradient = ZetaGradient,
    .expand = ExpandBinary<Zeta>,
    .samples = kSums,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});

constinit const OpDef kOp_mvlgamma = Formula({
    .name = "weft.mvlgamma",
    .c_name = "mvlgamma",
    .doc =
        "Elementwise logarithm of the multivariate gamma function of dimension p; NaN where x is not above (p - 1) / 2.",
    .example = "y = wf_mvlgamma(s, x, 2);",
    .attrs = kDimensions,
    .infer = InferMvlgamma,
    .expand = ExpandMvlgamma,
    .samples = kMultivariate,
    .tolerance = {.f32 = 1e-6, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-7},
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
