// Activations that are formulas, each put together so that what is not chosen at an element is finite and gets no gradient
// there.
#include <cmath>

#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAlpha[] = {{"alpha", AttrType::kDouble, "depth of the plateau below 0, not 0", false, "1"}};
constexpr AttrDef kLambda[] = {
    {"lambd", AttrType::kDouble, "half the width of what becomes 0, at least 0", false, "0.5"}};
constexpr AttrDef kEnds[] = {{"low", AttrType::kDouble, "least result", false, "-1"},
                             {"high", AttrType::kDouble, "largest result, not below low", false, "1"}};
constexpr AttrDef kThreshold[] = {{"threshold", AttrType::kDouble, "what x must exceed to stay", true},
                                  {"value", AttrType::kDouble, "the result elsewhere", true}};
constexpr AttrDef kSoftness[] = {
    {"beta", AttrType::kDouble, "steepness of the bend, not 0", false, "1"},
    {"threshold", AttrType::kDouble, "where beta x exceeds it the result is x", false, "20"}};
constexpr AttrDef kAxis[] = {{"axis", AttrType::kInt, "axis; negative counts from the end", false, "-1"}};
constexpr OperandDef kSlopes[] = {{"x", kF, "operand"}, {"weight", kF, "slope below 0"}};

Value Positive(Builder& b, const Value& x) { return Compare(b, Direction::kGt, x, 0); }

absl::Status Finite(std::string_view name, double value, bool zero_too) {
  if (std::isfinite(value) && (zero_too || value != 0)) return absl::OkStatus();
  return UserError(name, " is ", value, "; it must be finite", zero_too ? "" : " and not 0");
}

// scale (x where it is positive, alpha (e^(x / alpha) - 1) elsewhere), by `inner` in the place of the alpha below x.
Value Exponential(Builder& b, const Value& x, double alpha, double inner, double scale) {
  const Value positive = Positive(b, x), low = Select(b, positive, FullLike(b, x, 0), x);
  const Value bend = Mul(b, Unary(b, kOp_expm1, inner == 1 ? low : Mul(b, low, 1 / inner)), alpha * scale);
  return Select(b, positive, scale == 1 ? x : Mul(b, x, scale), bend);
}
absl::Status InferCelu(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(Finite("alpha", Attr<kAlpha, "alpha">(call.attrs), false));
  return InferSame(call, results);
}
absl::Status ExpandCelu(const ExpandCall& call, std::span<Value> results) {
  const double alpha = Attr<kAlpha, "alpha">(call.attrs);
  results[0] = Exponential(call.b, call.operands[0], alpha, alpha, 1);
  return absl::OkStatus();
}
Value Selu(Builder& b, const Value& x) {
  return Exponential(b, x, 1.6732632423543772848170429916717, 1, 1.0507009873554804934193349852946);
}

absl::Status InferShrink(const InferCall& call, Types* results) {
  const double lambda = Attr<kLambda, "lambd">(call.attrs);
  if (!(lambda >= 0 && std::isfinite(lambda)))
    return UserError("lambd is ", lambda, "; it must be finite and at least 0");
  return InferSame(call, results);
}
absl::Status ExpandHardshrink(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value within = Compare(b, Direction::kLe, Abs(b, x), Attr<kLambda, "lambd">(call.attrs));
  results[0] = Select(b, within, FullLike(b, x, 0), x);
  return absl::OkStatus();
}
absl::Status ExpandSoftshrink(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const double lambda = Attr<kLambda, "lambd">(call.attrs);
  const Value within = Compare(b, Direction::kLe, Abs(b, x), lambda);
  const Value by = Select(b, Positive(b, x), FullLike(b, x, -lambda), FullLike(b, x, lambda));
  results[0] = Select(b, within, FullLike(b, x, 0), Add(b, x, by));
  return absl::OkStatus();
}

// x between two ends, which have no slope; NaN stays.
Value Held(Builder& b, const Value& x, double low, double high) {
  const Value raised = Select(b, Compare(b, Direction::kLe, x, low), FullLike(b, x, low), x);
  return Select(b, Compare(b, Direction::kGe, raised, high), FullLike(b, x, high), raised);
}
absl::Status InferHardtanh(const InferCall& call, Types* results) {
  const double low = Attr<kEnds, "low">(call.attrs), high = Attr<kEnds, "high">(call.attrs);
  if (!(low <= high)) return UserError("low is ", low, " and high is ", high, "; low must not exceed high");
  return InferSame(call, results);
}
absl::Status ExpandHardtanh(const ExpandCall& call, std::span<Value> results) {
  results[0] = Held(call.b, call.operands[0], Attr<kEnds, "low">(call.attrs), Attr<kEnds, "high">(call.attrs));
  return absl::OkStatus();
}
Value Hardsigmoid(Builder& b, const Value& x) { return Mul(b, Add(b, Held(b, x, -3, 3), 3), 1.0 / 6); }
Value Hardswish(Builder& b, const Value& x) {
  const Value below = Compare(b, Direction::kLe, x, -3), above = Compare(b, Direction::kGe, x, 3);
  const Value zero = FullLike(b, x, 0), within = Select(b, Either(b, below, above), zero, x);
  const Value bend = Mul(b, Mul(b, within, Add(b, within, 3)), 1.0 / 6);
  return Select(b, below, zero, Select(b, above, x, bend));
}

Value Logsigmoid(Builder& b, const Value& x) { return Neg(b, Unary(b, kOp_softplus, Neg(b, x))); }

absl::Status InferSoftplus(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(Finite("beta", Attr<kSoftness, "beta">(call.attrs), false));
  return InferSame(call, results);
}
absl::Status ExpandSoftplus(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const double beta = Attr<kSoftness, "beta">(call.attrs);
  const Value scaled = Mul(b, x, beta);
  const Value far = Compare(b, Direction::kGt, scaled, Attr<kSoftness, "threshold">(call.attrs));
  const Value bend = Mul(b, Unary(b, kOp_softplus, Select(b, far, FullLike(b, x, 0), scaled)), 1 / beta);
  results[0] = Select(b, far, x, bend);
  return absl::OkStatus();
}

absl::Status ExpandThreshold(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value below = Compare(b, Direction::kLe, x, Attr<kThreshold, "threshold">(call.attrs));
  results[0] = Select(b, below, FullLike(b, x, Attr<kThreshold, "value">(call.attrs)), x);
  return absl::OkStatus();
}

// x is 0 in the product where it stays, so that the weight's slope there is 0 even of an infinite x.
Value Prelu(Builder& b, const Value& x, const Value& weight) {
  const Value positive = Positive(b, x);
  return Select(b, positive, x, Mul(b, weight, Select(b, positive, FullLike(b, x, 0), x)));
}

// x tanh(softplus(x)), whose slope is t + x (1 - t²) sigmoid(x).
// With e = e^x, w = e (e + 2) and d = w + 2 the tanh is w / d, from 20 on 1, and e (1 - e (e + 1) / d), which x < -1 goes by. Below -64 e may
// be a subnormal number where x e is none: there x e^(x + 32) goes first, and the rest of the factor is 1.
Value Mish(Builder& b, const Value& x) {
  const Value held = Maximum(b, x, FullLike(b, x, -1000)), far = Compare(b, Direction::kLt, x, -64);
  const Value raised = Select(b, far, Add(b, held, 32), Minimum(b, held, FullLike(b, x, 20)));
  const Value e = Exp(b, raised), near = Select(b, far, FullLike(b, x, 0), e), square = Square(b, near);
  const Value low = Mul(b, Mul(b, held, e), Select(b, far, FullLike(b, x, std::exp(-32.0)), FullLike(b, x, 1)));
  const Value negative = Compare(b, Direction::kLt, x, -1), w = Add(b, square, Mul(b, near, 2));
  const Value share = Div(b, Select(b, negative, Add(b, square, near), w), Add(b, w, 2));
  return Mul(b, Select(b, negative, low, held), Select(b, negative, Sub(b, 1, share), share));
}
Value MishSlope(Builder& b, const Value& x, const Value&) {
  const Value held = ops::Held(b, x, 1000), t = Tanh(b, Unary(b, kOp_softplus, held));
  return Add(b, t, Mul(b, Mul(b, held, Sub(b, 1, Square(b, t))), Sigmoid(b, held)));
}

Value Softsign(Builder& b, const Value& x) {
  const BySize by(b, x, x.dtype() == DType::kF64 ? 1e17 : 1e9);
  return Select(b, by.far, Unary(b, kOp_sign, by.beyond), Div(b, by.within, Add(b, Abs(b, by.within), 1)));
}
Value SoftsignSlope(Builder& b, const Value& x, const Value&) { return Square(b, Div(b, 1, Add(b, Abs(b, x), 1))); }

// Near 0, where the difference cancels, by (x - tanh x) / x³: of f64 the tenth convergent of tanh's continued fraction
// x / (1 + x² / (3 + x² / (5 + …))), within 3e-18, of f32 a fit.
constexpr double kShrinkOver[] = {65, 42900, 6891885, 349188840, 4583103525};
constexpr double kShrinkUnder[] = {66, 45045, 7567560, 413513100, 6547290750, 13749310575};
Value Tanhshrink(Builder& b, const Value& x) {
  const bool wide = x.dtype() == DType::kF64;
  const Value near = Compare(b, Direction::kLt, Abs(b, x), wide ? 1.5 : 1.4),
              held = Select(b, near, x, FullLike(b, x, 0));
  const Value square = Square(b, held);
  const Value share = wide ? Div(b, Polynomial(b, square, kShrinkOver), Polynomial(b, square, kShrinkUnder))
                           : Polynomial(b, Add(b, square, -1), kTanhshrink32);
  return Select(b, near, Mul(b, Mul(b, held, square), share), Sub(b, x, Tanh(b, x)));
}
Value TanhshrinkSlope(Builder& b, const Value& x, const Value&) { return Square(b, Tanh(b, x)); }

absl::Status InferGlu(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  Dims& dims = results->back().dims;
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAxis, "axis">(call.attrs), dims.size()));
  if (dims[axis] % 2 != 0)
    return UserError("axis ", axis, " has ", dims[axis], " elements; it must be an even number of them");
  dims[axis] /= 2;
  return absl::OkStatus();
}
absl::Status ExpandGlu(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const size_t rank = x.dims().size();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAxis, "axis">(call.attrs), rank));
  const int64_t half = x.dims()[axis] / 2;
  const auto part = [&](int64_t begin) {
    Ints start(rank, 0), limit = ToInts(x.dims());
    start[axis] = begin;
    limit[axis] = begin + half;
    return Slice(b, x, start, limit, Ints(rank, 1));
  };
  results[0] = Mul(b, part(0), Sigmoid(b, part(half)));
  return absl::OkStatus();
}

absl::Status InferAxis(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(AxisOfRow("axis", Attr<kAxis, "axis">(call.attrs), call.operands[0]->rank()).status());
  return InferSame(call, results);
}
absl::Status ExpandSoftmin(const ExpandCall& call, std::span<Value> results) {
  results[0] = Call(call.b, kOp_softmax, {Neg(call.b, call.operands[0])}, {Attr<kAxis, "axis">(call.attrs)});
  return absl::OkStatus();
}

constexpr Sample kAll[] = {{"T[2,3]", -4, 4}, {"T[131]", -4, 4}, {"T[0,3]"}};
constexpr Sample kCelu[] = {{"T[2,3]", -4, 4}, {"T[131] alpha=0.5", -4, 4}, {"T[0]"}};
constexpr Sample kShrink[] = {{"T[2,3]", -4, 4}, {"T[131] lambd=0.75", -4, 4}, {"T[0]"}};
constexpr Sample kHardtanh[] = {{"T[2,3]", -4, 4}, {"T[131] low=0 high=2", -4, 4}, {"T[0]"}};
constexpr Sample kSoftplus[] = {{"T[2,3]", -4, 4}, {"T[131] beta=2 threshold=1", -4, 4}, {"T[0]"}};
constexpr Sample kThresholds[] = {{"T[2,3] threshold=0.5 value=-1", -4, 4}, {"T[0] threshold=0 value=0"}};
constexpr Sample kPrelu[] = {{"T[2,3] T[3]", -4, 4}, {"T[131] T[]", -4, 4}, {"T[0,3] T[1]"}};
constexpr Sample kGlu[] = {{"T[2,6]", -4, 4}, {"T[4,3] axis=0", -4, 4}, {"T[0,2]"}};
constexpr Sample kSoftmin[] = {{"T[2,6]", -4, 4}, {"T[4,3] axis=0", -4, 4}, {"T[1]"}};
constexpr Tolerance kTolerance = {.f32 = 4e-6, .f64 = 2e-14, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6};

}  // namespace

constinit const OpDef kOp_celu = Formula({
    .name = "weft.celu",
    .c_name = "celu",
    .doc =
        "Continuous exponential linear unit, elementwise: x where it is positive, alpha (e^(x / alpha) - 1) elsewhere.",
    .example = "y = wf_celu(s, x);",
    .attrs = kAlpha,
    .infer = InferCelu,
    .expand = ExpandCelu,
    .samples = kCelu,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_selu = Formula({
    .name = "weft.selu",
    .c_name = "selu",
    .doc = "Scaled exponential linear unit, elementwise: 1.0507 (x where it is positive, 1.67326 (e^x - 1) elsewhere). "
           "Source: Klambauer et al. (2017).",
    .example = "y = wf_selu(s, x);",
    .expand = ExpandUnary<Selu>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_hardshrink = Formula({
    .name = "weft.hardshrink",
    .c_name = "hardshrink",
    .doc = "0 where |x| <= lambd, x elsewhere, elementwise.",
    .example = "y = wf_hardshrink(s, x);",
    .attrs = kLambda,
    .infer = InferShrink,
    .expand = ExpandHardshrink,
    .samples = kShrink,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_softshrink = Formula({
    .name = "weft.softshrink",
    .c_name = "softshrink",
    .doc = "0 where |x| <= lambd, x moved by lambd towards 0 elsewhere, elementwise.",
    .example = "y = wf_softshrink(s, x);",
    .attrs = kLambda,
    .infer = InferShrink,
    .expand = ExpandSoftshrink,
    .samples = kShrink,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_hardtanh = Formula({
    .name = "weft.hardtanh",
    .c_name = "hardtanh",
    .doc = "x held between low and high, elementwise. The gradient at an end is 0, as beyond it.",
    .example = "y = wf_hardtanh(s, x);",
    .attrs = kEnds,
    .infer = InferHardtanh,
    .expand = ExpandHardtanh,
    .samples = kHardtanh,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_hardsigmoid = Formula({
    .name = "weft.hardsigmoid",
    .c_name = "hardsigmoid",
    .doc = "(x + 3) / 6 held between 0 and 1, elementwise. The gradient at both ends is 0.",
    .example = "y = wf_hardsigmoid(s, x);",
    .expand = ExpandUnary<Hardsigmoid>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_hardswish = Formula({
    .name = "weft.hardswish",
    .c_name = "hardswish",
    .doc = "x hardsigmoid(x), elementwise: 0 up to -3, x from 3 on. Source: Howard et al. (2019).",
    .example = "y = wf_hardswish(s, x);",
    .expand = ExpandUnary<Hardswish>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_logsigmoid = Formula({
    .name = "weft.logsigmoid",
    .c_name = "logsigmoid",
    .doc = "The logarithm of the sigmoid, -log(1 + e^-x), elementwise, which never overflows.",
    .example = "y = wf_logsigmoid(s, x);",
    .expand = ExpandUnary<Logsigmoid>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_softplus_beta = Formula({
    .name = "weft.softplus_beta",
    .c_name = "softplus_beta",
    .doc =
        "log(1 + e^(beta x)) / beta, elementwise, and x itself where beta x exceeds the threshold: PyTorch's softplus.",
    .example = "y = wf_softplus_beta(s, x, .beta = 2);",
    .attrs = kSoftness,
    .infer = InferSoftplus,
    .expand = ExpandSoftplus,
    .samples = kSoftplus,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_threshold = Formula({
    .name = "weft.threshold",
    .c_name = "threshold",
    .doc = "x where it exceeds the threshold or is NaN, the value elsewhere, elementwise.",
    .example = "y = wf_threshold(s, x, 0, 0);",
    .attrs = kThreshold,
    .expand = ExpandThreshold,
    .samples = kThresholds,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_prelu = Broadcasting({
    .name = "weft.prelu",
    .c_name = "prelu",
    .doc = "x where it is positive, weight x elsewhere, elementwise with NumPy broadcasting. Source: He et al. (2015).",
    .example = "y = wf_prelu(s, x, weight);",
    .operands = kSlopes,
    .expand = ExpandBinary<Prelu>,
    .samples = kPrelu,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_mish = Special({
    .name = "weft.mish",
    .c_name = "mish",
    .doc = "x tanh(log(1 + e^x)), elementwise. Source: Misra (2019).",
    .example = "y = wf_mish(s, x);",
    .gradient = GradientUnary<MishSlope>,
    .expand = ExpandUnary<Mish>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_softsign = Special({
    .name = "weft.softsign",
    .c_name = "softsign",
    .doc = "x / (1 + |x|), elementwise; -1 and 1 at the infinities.",
    .example = "y = wf_softsign(s, x);",
    .gradient = GradientUnary<SoftsignSlope>,
    .expand = ExpandUnary<Softsign>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_tanhshrink = Special({
    .name = "weft.tanhshrink",
    .c_name = "tanhshrink",
    .doc = "x - tanh(x), elementwise.",
    .example = "y = wf_tanhshrink(s, x);",
    .gradient = GradientUnary<TanhshrinkSlope>,
    .expand = ExpandUnary<Tanhshrink>,
    .samples = kAll,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_glu = Formula({
    .name = "weft.glu",
    .c_name = "glu",
    .doc =
        "Gated linear unit: the first half along an axis times the sigmoid of the second half. Source: Dauphin et al. (2016).",
    .example = "y = wf_glu(s, x);",
    .attrs = kAxis,
    .infer = InferGlu,
    .expand = ExpandGlu,
    .samples = kGlu,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_softmin = Formula({
    .name = "weft.softmin",
    .c_name = "softmin",
    .doc = "Softmax of -x along one axis.",
    .example = "p = wf_softmin(s, distances);",
    .attrs = kAxis,
    .infer = InferAxis,
    .expand = ExpandSoftmin,
    .samples = kSoftmin,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
