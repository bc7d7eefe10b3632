// Continuous distributions that are a formula of one standard draw: normal_of, log_normal, exponential, laplace, gumbel, cauchy,
// truncated_normal.
#include <cmath>
#include <numbers>

#include "src/ops/elementwise/special.h"
#include "src/ops/normal_quantile.h"
#include "src/ops/random/distributions.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kNormalOperands[] = {
    {"mean", kF | kWhole, "mean"}, {"deviation", kF | kWhole, "standard deviation, from 0 on"}, kState};
constexpr OperandDef kScaleOperands[] = {
    {"location", kF | kWhole, "what is added"}, {"scale", kF | kWhole, "factor, from 0 on"}, kState};
constexpr OperandDef kRateOperands[] = {{"rate", kF | kWhole, "1 / mean, above 0"}, kState};

// location + scale * draw, NaN where scale is below 0 or NaN.
Value Scaled(Builder& b, const Values& parameters, const Value& draw) {
  const Value x = Add(b, parameters[0], Mul(b, draw, parameters[1]));
  return Where(b, Compare(b, Direction::kGe, parameters[1], 0), x);
}

// A sign, 1 or -1, and v within (0, 1), all other bits of the word, finest where it is small.
struct Signed {
  Value sign, v;
};
Signed RandomSigned(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  const bool wide = dtype == DType::kF64;
  const Value bits = RandomBits(b, state, dims, wide ? DType::kU64 : DType::kU32);
  if (!bits) return {};
  const Value one = FullLike(b, bits, 1);
  const Value odd = Compare(b, Direction::kEq, And(b, bits, one), one);
  const Value size = Convert(b, Call(b, kOp_shift_right_logical, {bits, one}), dtype);
  const Value v = Mul(b, Add(b, size, 0.5), std::ldexp(1.0, wide ? -63 : -31));
  return {Select(b, odd, FullLike(b, v, -1), FullLike(b, v, 1)),
          Minimum(b, v, FullLike(b, v, 1 - std::ldexp(1.0, wide ? -53 : -24)))};
}

Value Normal(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  return RandomNormal(b, state, dims, dtype);
}
Value Laplace(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  const Signed draw = RandomSigned(b, state, dims, dtype);
  return Mul(b, draw.sign, Neg(b, Unary(b, kOp_log1p, Neg(b, draw.v))));
}
Value Gumbel(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  return Neg(b, Log(b, RandomExponential(b, state, dims, dtype)));
}
// The cotangent of a small angle: the tail is as fine as the word.
Value Cauchy(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  const Signed draw = RandomSigned(b, state, dims, dtype);
  return Div(b, draw.sign, Unary(b, kOp_tan, Mul(b, draw.v, std::numbers::pi / 2)));
}

template <Value (*draw)(Builder&, const Value&, const Dims&, DType)>
absl::Status ExpandScaled(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Values parameters, DrawnParameters(call));
  const Value standard = draw(call.b, call.operands.back(), parameters[0].dims(), parameters[0].dtype());
  results[0] = Scaled(call.b, parameters, standard);
  return absl::OkStatus();
}
absl::Status ExpandLogNormal(const ExpandCall& call, std::span<Value> results) {
  WEFT_RETURN_IF_ERROR(ExpandScaled<Normal>(call, results));
  results[0] = Exp(call.b, results[0]);
  return absl::OkStatus();
}
absl::Status ExpandExponential(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Values parameters, DrawnParameters(call));
  const Value& rate = parameters[0];
  const Value standard = RandomExponential(b, call.operands.back(), rate.dims(), rate.dtype());
  results[0] = Where(b, Compare(b, Direction::kGt, rate, 0), Div(b, standard, rate));
  return absl::OkStatus();
}

// --- truncated_normal

constexpr OperandDef kOnlyState[] = {kState};
constexpr AttrDef kTruncatedAttrs[] = {{"shape", AttrType::kInts, "result shape", true},
                                       {"mean", AttrType::kDouble, "mean before truncation", false, "0"},
                                       {"deviation", AttrType::kDouble, "standard deviation before it", false, "1"},
                                       {"low", AttrType::kDouble, "the least number", false, "-2"},
                                       {"high", AttrType::kDouble, "the largest number", false, "2"},
                                       {"dtype", AttrType::kDType, "element type", false, "f32"}};

// The share of the normal distribution below both ends, counted from the side where the shares are small and exact.
struct Shares {
  double low, high, side;
};
Shares SharesOf(const Attrs& attrs) {
  const double mean = Attr<kTruncatedAttrs, "mean">(attrs), deviation = Attr<kTruncatedAttrs, "deviation">(attrs);
  const double low = (Attr<kTruncatedAttrs, "low">(attrs) - mean) / deviation;
  const double high = (Attr<kTruncatedAttrs, "high">(attrs) - mean) / deviation;
  const auto below = [](double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; };
  if (low > 0) return {below(-high), below(-low), -1};
  return {below(low), below(high), 1};
}

absl::Status InferTruncated(const InferCall& call, Types* results) {
  const Attrs& attrs = call.attrs;
  const double mean = Attr<kTruncatedAttrs, "mean">(attrs), deviation = Attr<kTruncatedAttrs, "deviation">(attrs);
  const double low = Attr<kTruncatedAttrs, "low">(attrs), high = Attr<kTruncatedAttrs, "high">(attrs);
  if (!(std::isfinite(mean) && std::isfinite(deviation) && deviation > 0)) {
    return UserError("mean is ", mean, " and deviation is ", deviation, "; both must be finite, deviation above 0");
  }
  if (!(low < high)) return UserError("low is ", low, " and high is ", high, "; low must be below high");
  const Shares shares = SharesOf(attrs);
  if (!(shares.low < shares.high)) {
    return UserError("between low ", low, " and high ", high, " there is nothing of a normal distribution of mean ",
                     mean, " and deviation ", deviation);
  }
  return InferDistribution(call, 0, 5, results);
}

absl::Status ExpandTruncated(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Shares shares = SharesOf(call.attrs);
  const Value u = RandomOpen(b, call.operands[0], ToDims(Attr<kTruncatedAttrs, "shape">(call.attrs)));
  const Value share = Add(b, Mul(b, u, shares.high - shares.low), shares.low);
  const Value z = Mul(b, NormalQuantile(b, share), shares.side * Attr<kTruncatedAttrs, "deviation">(call.attrs));
  const Value x = Add(b, z, Attr<kTruncatedAttrs, "mean">(call.attrs));
  if (!x) return absl::OkStatus();
  const Value held = Minimum(b, Maximum(b, x, FullLike(b, x, Attr<kTruncatedAttrs, "low">(call.attrs))),
                             FullLike(b, x, Attr<kTruncatedAttrs, "high">(call.attrs)));
  results[0] = Convert(b, held, Attr<kTruncatedAttrs, "dtype">(call.attrs));
  return absl::OkStatus();
}

constexpr Sample kPairSamples[] = {{"T[2,3] T[3] u64[3]<0:1000>", 0.5, 2},
                                   {"T[] T[] u64[3]<0:1000> shape=[131]", 0.5, 2},
                                   {"T[0,3] T[3] u64[3]<0:9>", 0.5, 2},
                                   {"T[4,1] T[5] u64[3]<-2:-1> shape=[2,4,5]", 0.5, 2}};
constexpr Sample kRateSamples[] = {
    {"T[2,3] u64[3]<0:1000>", 0.5, 2}, {"T[] u64[3]<0:1000> shape=[131]", 0.5, 2}, {"T[0,3] u64[3]<0:9>", 0.5, 2}};
constexpr Sample kTruncatedSamples[] = {{"u64[3]<0:1000> shape=[2,3]"},
                                        {"u64[3]<0:1000> shape=[131] low=5 high=9 dtype=f64"},
                                        {"u64[3]<0:9> shape=[0]"},
                                        {"u64[3]<0:9> shape=[7] mean=1 deviation=0.5 low=-9 high=0 dtype=bf16"}};
constexpr Tolerance kTolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 3e-2, .f16 = 6e-3, .absolute = 1e-6};
// Close to the pole of its formula a Cauchy number is as large as the reciprocal of a rounding error.
constexpr Tolerance kTailTolerance = {.f32 = 1e-4, .f64 = 1e-11, .bf16 = 5e-2, .f16 = 1e-2, .absolute = 1e-6};

}  // namespace

constinit const OpDef kOp_normal_of = Drawn({
    .name = "weft.normal_of",
    .c_name = "normal_of",
    .kind = Kind::kMacro,
    .doc =
        "Random numbers of normal distributions whose means and deviations are tensors, drawn from the context's "
        "generator: mean + deviation times normal. NaN where a deviation is negative or NaN. The gradient flows to both.",
    .example = "z = wf_normal_of(s, mean, deviation);",
    .operands = kNormalOperands,
    .expand = ExpandScaled<Normal>,
    .samples = kPairSamples,
    .tolerance = kTolerance,
    .absent = kMacroAbsent,
});
constinit const OpDef kOp_log_normal = Drawn({
    .name = "weft.log_normal",
    .c_name = "log_normal",
    .kind = Kind::kMacro,
    .doc = "Random numbers whose logarithms are normally distributed with these means and deviations, drawn from the "
           "context's generator. NaN where a deviation is negative or NaN. The gradient flows to both.",
    .example = "x = wf_log_normal(s, mean, deviation);",
    .operands = kNormalOperands,
    .expand = ExpandLogNormal,
    .samples = kPairSamples,
    .tolerance = kTolerance,
    .absent = kMacroAbsent,
});
constinit const OpDef kOp_exponential = Drawn({
    .name = "weft.exponential",
    .c_name = "exponential",
    .kind = Kind::kMacro,
    .doc =
        "Random numbers of exponential distributions of mean 1 / rate, drawn from the context's generator: -log1p(-u) "
        "/ rate, u of all bits of a word, so that small numbers are fine; f32 reaches 16.6 / rate, f64 36.7 / rate. NaN "
        "where a rate is not above 0. The gradient flows to the rate.",
    .example = "t = wf_exponential(s, rate);",
    .operands = kRateOperands,
    .expand = ExpandExponential,
    .samples = kRateSamples,
    .tolerance = kTolerance,
    .absent = kMacroAbsent,
});
constinit const OpDef kOp_laplace = Drawn({
    .name = "weft.laplace",
    .c_name = "laplace",
    .kind = Kind::kMacro,
    .doc = "Random numbers of Laplace distributions, drawn from the context's generator: exponential numbers of either "
           "sign, times scale, plus location. NaN where a scale is negative or NaN. The gradient flows to both.",
    .example = "x = wf_laplace(s, location, scale);",
    .operands = kScaleOperands,
    .expand = ExpandScaled<Laplace>,
    .samples = kPairSamples,
    .tolerance = kTolerance,
    .absent = kMacroAbsent,
});
constinit const OpDef kOp_gumbel = Drawn({
    .name = "weft.gumbel",
    .c_name = "gumbel",
    .kind = Kind::kMacro,
    .doc = "Random numbers of Gumbel distributions, drawn from the context's generator: -log(exponential) times scale, "
           "plus location. NaN where a scale is negative or NaN. The gradient flows to both.",
    .example = "x = wf_gumbel(s, location, scale);",
    .operands = kScaleOperands,
    .expand = ExpandScaled<Gumbel>,
    .samples = kPairSamples,
    .tolerance = kTolerance,
    .absent = kMacroAbsent,
});
constinit const OpDef kOp_cauchy = Drawn({
    .name = "weft.cauchy",
    .c_name = "cauchy",
    .kind = Kind::kMacro,
    .doc =
        "Random numbers of Cauchy distributions, drawn from the context's generator: the cotangent of an angle, times "
        "scale, plus location. NaN where a scale is negative or NaN. The gradient flows to both.",
    .example = "x = wf_cauchy(s, location, scale);",
    .operands = kScaleOperands,
    .expand = ExpandScaled<Cauchy>,
    .samples = kPairSamples,
    .tolerance = kTailTolerance,
    .absent = kMacroAbsent,
});
constinit const OpDef kOp_truncated_normal = Drawn({
    .name = "weft.truncated_normal",
    .c_name = "truncated_normal",
    .kind = Kind::kComposite,
    .doc =
        "Random numbers of a normal distribution between two bounds, drawn from the context's generator by the inverse "
        "of its distribution function, in f64 and from the nearer tail, so that bounds far from the mean are as good as "
        "others. The numbers of the distribution are part of the program.",
    .example = "w = wf_truncated_normal(s, WF_INTS(784, 512), .deviation = 0.02);",
    .operands = kOnlyState,
    .attrs = kTruncatedAttrs,
    .infer = InferTruncated,
    .expand = ExpandTruncated,
    .samples = kTruncatedSamples,
    .tolerance = kTolerance,
    .absent = kCompositeNoGradient,
});

}  // namespace weft::ops
