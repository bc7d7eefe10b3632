// uniform: random numbers, evenly spread.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ops/random/bits.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {kState};
constexpr AttrDef kAttrs[] = {
    {"shape", AttrType::kInts, "result shape", true},
    {"low", AttrType::kDouble, "lower bound", false, "0"},
    {"high", AttrType::kDouble, "upper bound", false, "1"},
    {"dtype", AttrType::kDType, "element type", false, "f32"},
};

int DigitsOf(DType dtype) {
  return dtype == DType::kBF16 ? 8 : dtype == DType::kF16 ? 11 : dtype == DType::kF32 ? 24 : 53;
}
int LeastExponentOf(DType dtype) { return dtype == DType::kF16 ? -14 : dtype == DType::kF64 ? -1022 : -126; }
// The largest number.
double LimitOf(DType dtype) {
  if (dtype == DType::kF64) return std::numeric_limits<double>::max();
  return std::ldexp(2 - std::ldexp(1.0, 1 - DigitsOf(dtype)), dtype == DType::kF16 ? 15 : 127);
}
// The largest number of the type that is not above x, |x| <= LimitOf(dtype).
double RoundDown(DType dtype, double x) {
  if (x == 0 || dtype == DType::kF64) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), LeastExponentOf(dtype)) - (DigitsOf(dtype) - 1));
  return std::floor(x / unit) * unit;
}

// The ends of [low, high) as numbers of the type.
struct Ends {
  double first, last;
};
Ends EndsOf(DType dtype, double low, double high) {
  return {-RoundDown(dtype, -low), RoundDown(dtype, std::nextafter(high, -std::numeric_limits<double>::infinity()))};
}

absl::Status Infer(const InferCall& call, Types* results) {
  const double low = Attr<kAttrs, "low">(call.attrs), high = Attr<kAttrs, "high">(call.attrs);
  if (!(std::isfinite(low) && std::isfinite(high) && low < high)) {
    return UserError("low is ", low, " and high is ", high, "; both must be finite and low below high");
  }
  WEFT_RETURN_IF_ERROR(InferDistribution(call, 0, 3, results));
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  if (-low > LimitOf(dtype) || high > LimitOf(dtype)) {
    return UserError("low is ", low, " and high is ", high, "; ", NameOf(dtype), " ends at ", LimitOf(dtype));
  }
  const Ends ends = EndsOf(dtype, low, high);
  if (ends.first > ends.last) return UserError("there is no ", NameOf(dtype), " in [", low, ", ", high, ")");
  return absl::OkStatus();
}

// The largest 16-bit number not above v (f32), as f32: the nearest one, or where that is above v the one before it, which is
// what y less 0.6 to 1.1 of its units rounds to.
Value RoundDown16(Builder& b, const Value& v, DType dtype) {
  const auto nearest = [&](const Value& x) { return Convert(b, Convert(b, x, dtype), DType::kF32); };
  const double least = std::ldexp(1.0, LeastExponentOf(dtype) - (DigitsOf(dtype) - 1));
  Value y = nearest(v);
  Value step = Add(b, Mul(b, Abs(b, y), 1.01 * std::ldexp(1.0, -DigitsOf(dtype))), 0.51 * least);
  return Select(b, Compare(b, Direction::kGt, y, v), nearest(Sub(b, y, step)), y);
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const double low = Attr<kAttrs, "low">(call.attrs), high = Attr<kAttrs, "high">(call.attrs);
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  const Dims dims = ToDims(Attr<kAttrs, "shape">(call.attrs));
  if (low == 0 && high == 1) {
    results[0] = RandomUnit(b, call.operands[0], dims, dtype);
    return absl::OkStatus();
  }
  const DType kind = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  Value unit = RandomUnit(b, call.operands[0], dims, kind);
  if (!unit) return absl::OkStatus();
  Value x;
  if (high - low <= LimitOf(kind)) {
    x = Add(b, Mul(b, unit, high - low), low);
  } else {  // in halves, whose difference is no infinity
    x = Mul(b, Add(b, Mul(b, unit, high / 2 - low / 2), low / 2), 2);
  }
  if (kind != dtype) x = RoundDown16(b, x, dtype);
  const Ends ends = EndsOf(dtype, low, high);
  x = Minimum(b, Maximum(b, x, FullLike(b, x, ends.first)), FullLike(b, x, ends.last));
  results[0] = Convert(b, x, dtype);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"u64[3]<0:1000> shape=[2,3]"},
                               {"u64[3]<0:1000> shape=[131] dtype=f64"},
                               {"u64[3]<0:9> shape=[0]"},
                               {"u64[3]<0:9> shape=[7] dtype=bf16"},
                               {"u64[3]<0:9> shape=[70] low=100 high=101 dtype=bf16"},
                               {"u64[3]<0:9> shape=[70] low=-3e38 high=3e38"},
                               {"u64[3]<0:9> shape=[70] low=-0.1 high=0.3 dtype=f16"}};

}  // namespace

constinit const OpDef kOp_uniform = {
    .name = "weft.uniform",
    .c_name = "uniform",
    .kind = Kind::kComposite,
    .doc =
        "Random numbers evenly spread in [low, high), drawn from the context's generator: low + u (high - low), u the "
        "leading bits of rng_bit_generator, as many as the type's significand holds (f16 and bf16: as f32's, but for [0, 1)). "
        "f16 and bf16 are rounded down from f32; a result that rounding would bring to high becomes the number before it. "
        "Both bounds must be within the type's finite range and a number of the type must lie between them.",
    .example = "x = wf_uniform(s, WF_INTS(3, 3), .low = -1);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6},
    .absent = kCompositeNoGradient,
    .random = true,
};

}  // namespace weft::ops
