// lgamma, digamma, polygamma and Hurwitz's zeta function.
#include <cmath>
#include <limits>
#include <numbers>

#include "src/ir/rewrite.h"
#include "src/ops/elementwise/in_double.h"
#include "src/ops/elementwise/special.h"
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

// Lanczos' approximation of the gamma function, g = 7, nine terms.
constexpr double kLanczosG = 7;
constexpr double kLanczosBase = 0.99999999999980993227684700473478;
constexpr double kLanczos[] = {676.520368121885098567009190444019, -1259.13921672240287047156078755283,
                               771.3234287776530788486528258894,   -176.61502916214059906584551354,
                               12.507343278686904814458936853,     -0.13857109526572011689554707,
                               9.984369578019570859563e-6,         1.50563273514931155834e-7};

struct LanczosSums {
  Value sum, slope;  // base + Σ c / (z + i + 1), and the derivative of it
};
LanczosSums Lanczos(Builder& b, const Value& z) {
  LanczosSums sums = {FullLike(b, z, kLanczosBase), FullLike(b, z, 0)};
  for (size_t i = 0; i < std::size(kLanczos); ++i) {
    const Value below = Add(b, z, static_cast<double>(i + 1));
    const Value term = Div(b, kLanczos[i], below);
    sums.sum = Add(b, sums.sum, term);
    sums.slope = Sub(b, sums.slope, Div(b, term, below));
  }
  return sums;
}
// log(z + g + 1/2), by log1p so that small z keep their digits.
Value LanczosLog(Builder& b, const Value& z) {
  constexpr double kShift = kLanczosG + 0.5;
  return Add(b, Unary(b, kOp_log1p, Mul(b, z, 1 / kShift)), std::log(kShift));
}

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

// x < 1/2 goes by the reflection log(pi / |sin(pi x)|) - lgamma(1 - x).
Value Lgamma(Builder& b, const Value& x) {
  const Value reflect = Compare(b, Direction::kLt, x, 0.5);
  const Value z = Select(b, reflect, Neg(b, x), Add(b, x, -1));
  const Value log = LanczosLog(b, z), t = Add(b, z, kLanczosG + 0.5);
  const Value main = Mul(b, Sub(b, Add(b, z, 0.5), Div(b, t, log)), log);
  const Value right = Add(b, Add(b, main, std::log(2 * kPi) / 2), Log(b, Lanczos(b, z).sum));
  const Value a = Abs(b, x), fraction = Sub(b, a, Floor(b, a));
  const Value reduced = Select(b, Compare(b, Direction::kGt, fraction, 0.5), Sub(b, 1, fraction), fraction);
  const Value sine = Log(b, Unary(b, kOp_sin, Mul(b, reduced, kPi)));
  const Value left = Select(b, Unary(b, kOp_is_finite, sine), Sub(b, Sub(b, std::log(kPi), sine), right), Neg(b, sine));
  const Value zero = Either(b, Compare(b, Direction::kEq, x, 1), Compare(b, Direction::kEq, x, 2));
  const Value finite = Select(b, zero, FullLike(b, x, 0), Select(b, reflect, left, right));
  return Select(b, Compare(b, Direction::kEq, a, kInf), FullLike(b, x, kInf), finite);
}

// x < 1/2 goes by the reflection digamma(1 - x) - pi / tan(pi x).
Value Digamma(Builder& b, const Value& x) {
  const Value reflect = Compare(b, Direction::kLt, x, 0.5);
  const Value z = Select(b, reflect, Neg(b, x), Add(b, x, -1));
  const LanczosSums sums = Lanczos(b, z);
  const Value t = Add(b, z, kLanczosG + 0.5);
  const Value right = Sub(b, Add(b, LanczosLog(b, z), Div(b, sums.slope, sums.sum)), Div(b, kLanczosG, t));
  const Value angle = Mul(b, Add(b, x, Abs(b, Floor(b, Add(b, x, 0.5)))), kPi);
  const Value cotangent = Div(b, Mul(b, Unary(b, kOp_cos, angle), kPi), Unary(b, kOp_sin, angle));
  const Value any = Select(b, reflect, Sub(b, right, cotangent), right);
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
});

}  // namespace weft::ops
