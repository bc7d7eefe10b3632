// Formulas with logarithms, and those whose pieces meet where a plain formula divides by 0: logit, xlogy, entr, logaddexp,
// hypot, sinc.
#include <cmath>
#include <limits>
#include <numbers>

#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr OperandDef kTimesLog[] = {{"x", kF, "factor"}, {"y", kF, "whose logarithm it multiplies"}};
constexpr OperandDef kPairs[] = {{"x", kF, "first operand"}, {"y", kF, "second operand"}};
constexpr AttrDef kEps[] = {{"eps", AttrType::kDouble, "x is held to [eps, 1 - eps], 0 to 1/2; absent: as it is"}};

Value Log10(Builder& b, const Value& x) { return Mul(b, Log(b, x), std::numbers::log10e); }

// --- logit

absl::Status InferLogit(const InferCall& call, Types* results) {
  if (HasAttr<kEps, "eps">(call.attrs)) {
    const double eps = Attr<kEps, "eps">(call.attrs);
    if (!(eps >= 0 && eps <= 0.5)) return UserError("eps is ", eps, "; it must be 0 to 1/2");
  }
  return InferSame(call, results);
}
// Comparisons, so that NaN stays.
Value HeldToEps(Builder& b, const Value& x, const Attrs& attrs) {
  if (!HasAttr<kEps, "eps">(attrs)) return x;
  const double eps = Attr<kEps, "eps">(attrs);
  const Value raised = Select(b, Compare(b, Direction::kLt, x, eps), FullLike(b, x, eps), x);
  return Select(b, Compare(b, Direction::kGt, x, 1 - eps), FullLike(b, x, 1 - eps), raised);
}
// Near 1/2, where the quotient is near 1, by what it is more than 1.
absl::Status ExpandLogit(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = HeldToEps(b, call.operands[0], call.attrs), rest = Sub(b, 1, x);
  const Value off = Add(b, x, -0.5), more = Div(b, Mul(b, off, 2), rest);
  const Value near = Compare(b, Direction::kLt, Abs(b, off), 0.2);
  results[0] = Select(b, near, Unary(b, kOp_log1p, more), Log(b, Div(b, x, rest)));
  return absl::OkStatus();
}
// 1 / (x (1 - x)) in two parts, of which at an end one alone is infinite.
absl::Status LogitGradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& attrs = call.node.attrs();
  const Value &x = call.operands[0], &g = call.cotangents[0];
  const double eps = HasAttr<kEps, "eps">(attrs) ? Attr<kEps, "eps">(attrs) : 0;
  const Value held = Either(b, Compare(b, Direction::kLt, x, eps), Compare(b, Direction::kGt, x, 1 - eps));
  const Value within = Select(b, held, FullLike(b, x, 0.5), x);
  const Value slope = Mul(b, g, Add(b, Div(b, 1, within), Div(b, 1, Sub(b, 1, within))));
  grads[0] = Select(b, held, HasAttr<kEps, "eps">(attrs) ? FullLike(b, g, 0) : NoSlope(b, held, g), slope);
  return absl::OkStatus();
}

// --- x log(y)

// Where x is 0 and the logarithm infinite the product is 0, and so are the slopes.
template <const OpDef& log, int none>
Value TimesLog(Builder& b, const Value& x, const Value& y) {
  const Value low = Compare(b, Direction::kLe, y, none - 1), ends = Either(b, low, Compare(b, Direction::kEq, y, kInf));
  const Value zero = And(b, Compare(b, Direction::kEq, x, 0), ends);
  return Mul(b, x, Unary(b, log, Select(b, zero, FullLike(b, y, none), y)));
}

Value Entr(Builder& b, const Value& x) {
  const Value positive = Compare(b, Direction::kGt, x, 0), negative = Compare(b, Direction::kLt, x, 0);
  const Value inside = Neg(b, Mul(b, x, Log(b, Select(b, positive, x, FullLike(b, x, 1)))));
  const Value rest = Select(b, Compare(b, Direction::kEq, x, 0), FullLike(b, x, 0), inside);
  return Select(b, negative, FullLike(b, x, -kInf), rest);
}
Value EntrSlope(Builder& b, const Value& x, const Value&) { return Sub(b, -1, Log(b, x)); }

// --- sums of exponentials

// The larger one and log(1 + exp(smaller - larger)). What the difference's rounding loses is added, since exp makes much of it.
template <const OpDef& exp>
Value LogAdd(Builder& b, const Value& x, const Value& y, double unit) {
  const Value most = Maximum(b, x, y), least = Minimum(b, x, y), difference = Sub(b, least, most);
  const Value kept =
      Add(b, difference, most);  // Knuth's sum without error, of the smaller one and the larger one's negative
  const Value lost = Sub(b, Sub(b, least, kept), Sub(b, most, Sub(b, kept, difference)));
  const Value share = Unary(b, exp, difference), small = Mul(b, lost, unit);
  // Infinite operands lose NaN.
  const Value more =
      Unary(b, kOp_log1p, Select(b, Unary(b, kOp_is_finite, lost), Add(b, share, Mul(b, share, small)), share));
  // The distance of equal infinities is NaN.
  const Value equal = Compare(b, Direction::kEq, x, y);
  const Value added = Select(b, equal, FullLike(b, x, std::numbers::ln2), more);
  return Add(b, most, unit == 1 ? added : Mul(b, added, 1 / unit));
}
Value Logaddexp(Builder& b, const Value& x, const Value& y) { return LogAdd<kOp_exp>(b, x, y, 1); }
Value Logaddexp2(Builder& b, const Value& x, const Value& y) { return LogAdd<kOp_exp2>(b, x, y, std::numbers::ln2); }

// Each one's share of the sum; half of it where both are the same infinity. `two`: powers of 2.
template <bool two>
absl::Status LogAddGradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1], &g = call.cotangents[0];
  const Value same = And(b, Compare(b, Direction::kEq, x, y), Compare(b, Direction::kEq, Abs(b, x), kInf));
  const Value none = FullLike(b, x, 0);
  Value distance = Sub(b, Select(b, same, none, x), Select(b, same, none, y));
  if (two) distance = Mul(b, distance, std::numbers::ln2);
  if (call.wanted[0]) grads[0] = Mul(b, g, Sigmoid(b, distance));
  if (call.wanted[1]) grads[1] = Mul(b, g, Sigmoid(b, Neg(b, distance)));
  return absl::OkStatus();
}

// --- hypot: scaled by the larger one, which may not be squared

Value Hypot(Builder& b, const Value& x, const Value& y) {
  const Value wide = Abs(b, x), high = Abs(b, y), most = Maximum(b, wide, high), least = Minimum(b, wide, high);
  const Value none = Compare(b, Direction::kEq, most, 0);
  const Value ratio = Div(b, least, Select(b, none, FullLike(b, x, 1), most));
  const Value length = Mul(b, most, Sqrt(b, Add(b, Square(b, ratio), 1)));
  const auto infinite = [&](const Value& v) { return Compare(b, Direction::kEq, v, kInf); };
  return Select(b, Either(b, infinite(wide), infinite(high)), FullLike(b, x, kInf), length);
}
// x / hypot, y / hypot; at the origin 0. Where one is infinite, that one's slope is its sign.
absl::Status HypotGradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &r = call.results[0], &g = call.cotangents[0];
  const Value origin = Compare(b, Direction::kEq, r, 0), far = Compare(b, Direction::kEq, r, kInf);
  const Value safe = Select(b, Either(b, origin, far), FullLike(b, r, 1), r);
  for (size_t i = 0; i < 2; ++i) {
    if (!call.wanted[i]) continue;
    const Value &v = call.operands[i], infinite = Compare(b, Direction::kEq, Abs(b, v), kInf);
    const Value end = Select(b, infinite, Unary(b, kOp_sign, v), FullLike(b, v, 0));
    grads[i] = Mul(b, g, Select(b, far, end, Div(b, Select(b, far, FullLike(b, v, 0), v), safe)));
  }
  return absl::OkStatus();
}

// --- sinc: of whole numbers exactly 0, since the sine is taken of pi times the distance from the nearest one

Value Sinc(Builder& b, const Value& x) {
  const Value origin = Compare(b, Direction::kEq, x, 0), held = Select(b, origin, FullLike(b, x, 1), x);
  const Value whole = Unary(b, kOp_round, held), half = Mul(b, whole, 0.5);
  const Value sine = Unary(b, kOp_sin, Mul(b, Sub(b, held, whole), std::numbers::pi));
  const Value odd = Compare(b, Direction::kNe, half, Unary(b, kOp_floor, half));
  const Value quotient = Div(b, Select(b, odd, Neg(b, sine), sine), Mul(b, held, std::numbers::pi));
  return Select(b, origin, FullLike(b, x, 1), quotient);
}
// (cos(z) - sinc(x)) / x; near 0, where that cancels, by the series of it in z = pi x. (2 k) (-1)^k / (2 k + 1)!, highest
// first.
constexpr double kSincSlope[] = {-18 / 1.21645100408832e17,
                                 16 / 3.55687428096e14,
                                 -14 / 1.307674368e12,
                                 12 / 6227020800.0,
                                 -10 / 39916800.0,
                                 8 / 362880.0,
                                 -6 / 5040.0,
                                 4 / 120.0,
                                 -2 / 6.0};
Value SincSlope(Builder& b, const Value& x, const Value&) {
  const Value near = Compare(b, Direction::kLt, Abs(b, x), 0.25), zero = FullLike(b, x, 0);
  const Value small = Mul(b, Select(b, near, x, zero), std::numbers::pi);
  const Value series = Mul(b, Mul(b, small, Polynomial(b, Square(b, small), kSincSlope)), std::numbers::pi);
  const Value large = Select(b, near, FullLike(b, x, 1), x), z = Mul(b, large, std::numbers::pi);
  const Value plain = Div(b, Sub(b, Unary(b, kOp_cos, z), Div(b, Unary(b, kOp_sin, z), z)), large);
  return Select(b, near, series, plain);
}

constexpr Sample kPositive[] = {{"T[2,3]", 0.2, 5}, {"T[]", 0.2, 5}, {"T[0,3]", 0.2, 5}};
constexpr Sample kShares[] = {{"T[2,3]", 0.1, 0.9}, {"T[131] eps=0.1", 0.2, 0.8}, {"T[0,3]", 0.1, 0.9}};
constexpr Sample kAll[] = {{"T[2,3]", -3, 3}, {"T[]", -0.2, 0.2}, {"T[0,3]"}};
constexpr Sample kTwo[] = {{"T[2,3] T[3]", 0.3, 3}, {"T[] T[]", 0.3, 3}, {"T[0,3] T[3]"}};
constexpr Tolerance kTolerance = {.f32 = 4e-6, .f64 = 2e-14, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 2e-6};

}  // namespace

constinit const OpDef kOp_log10 = Formula({
    .name = "weft.log10",
    .c_name = "log10",
    .doc = "Elementwise logarithm to base 10.",
    .example = "y = wf_log10(s, x);",
    .operands = kRealOrComplex,
    .expand = ExpandUnary<Log10>,
    .samples = kPositive,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_logit = Special({
    .name = "weft.logit",
    .c_name = "logit",
    .doc = "Elementwise inverse of the sigmoid, log(x / (1 - x)); NaN outside of [0, 1] unless eps holds x inside, "
           "where the gradient of "
           "what is held is 0.",
    .example = "y = wf_logit(s, p);",
    .attrs = kEps,
    .infer = InferLogit,
    .gradient = LogitGradient,
    .expand = ExpandLogit,
    .samples = kShares,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_xlogy = Broadcasting({
    .name = "weft.xlogy",
    .c_name = "xlogy",
    .doc =
        "x log(y), elementwise with NumPy broadcasting; 0, and a gradient of 0, where x is 0 and the logarithm infinite.",
    .example = "z = wf_xlogy(s, x, y);",
    .operands = kTimesLog,
    .expand = ExpandBinary<TimesLog<kOp_log, 1>>,
    .samples = kTwo,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_xlog1py = Broadcasting({
    .name = "weft.xlog1py",
    .c_name = "xlog1py",
    .doc =
        "x log(1 + y), elementwise with NumPy broadcasting; 0, and a gradient of 0, where x is 0 and the logarithm infinite.",
    .example = "z = wf_xlog1py(s, x, y);",
    .operands = kTimesLog,
    .expand = ExpandBinary<TimesLog<kOp_log1p, 0>>,
    .samples = kTwo,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_entr = Special({
    .name = "weft.entr",
    .c_name = "entr",
    .doc = "Elementwise -x log(x), 0 at 0 and -inf below: an element's part of an entropy.",
    .example = "y = wf_entr(s, p);",
    .gradient = GradientUnary<EntrSlope>,
    .expand = ExpandUnary<Entr>,
    .samples = kPositive,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_logaddexp = Special({
    .name = "weft.logaddexp",
    .c_name = "logaddexp",
    .doc = "log(e^x + e^y), elementwise with NumPy broadcasting, without overflow.",
    .example = "z = wf_logaddexp(s, x, y);",
    .operands = kPairs,
    .rule = OperandRule::kBroadcast,
    .gradient = LogAddGradient<false>,
    .expand = ExpandBinary<Logaddexp>,
    .samples = kTwo,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_logaddexp2 = Special({
    .name = "weft.logaddexp2",
    .c_name = "logaddexp2",
    .doc = "log2(2^x + 2^y), elementwise with NumPy broadcasting, without overflow.",
    .example = "z = wf_logaddexp2(s, x, y);",
    .operands = kPairs,
    .rule = OperandRule::kBroadcast,
    .gradient = LogAddGradient<true>,
    .expand = ExpandBinary<Logaddexp2>,
    .samples = kTwo,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_hypot = Special({
    .name = "weft.hypot",
    .c_name = "hypot",
    .doc = "sqrt(x² + y²), elementwise with NumPy broadcasting, without overflow; inf where either is infinite, also "
           "beside NaN. The "
           "gradient at the origin is 0.",
    .example = "z = wf_hypot(s, x, y);",
    .operands = kPairs,
    .rule = OperandRule::kBroadcast,
    .gradient = HypotGradient,
    .expand = ExpandBinary<Hypot>,
    .samples = kTwo,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_sinc = Special({
    .name = "weft.sinc",
    .c_name = "sinc",
    .doc = "Elementwise sin(pi x) / (pi x), 1 at 0.",
    .example = "y = wf_sinc(s, x);",
    .gradient = GradientUnary<SincSlope>,
    .expand = ExpandUnary<Sinc>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
