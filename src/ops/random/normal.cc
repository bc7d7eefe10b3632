// normal: random numbers of the normal distribution.
#include <cmath>

#include "src/ops/random/bits.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {kState};
constexpr AttrDef kAttrs[] = {
    {"shape", AttrType::kInts, "result shape", true},
    {"mean", AttrType::kDouble, "mean", false, "0"},
    {"deviation", AttrType::kDouble, "standard deviation", false, "1"},
    {"dtype", AttrType::kDType, "element type", false, "f32"},
};

absl::Status Infer(const InferCall& call, Types* results) {
  const double mean = Attr<kAttrs, "mean">(call.attrs), deviation = Attr<kAttrs, "deviation">(call.attrs);
  if (!(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0)) {
    return UserError("mean is ", mean, " and deviation is ", deviation,
                     "; both must be finite, deviation not negative");
  }
  return InferDistribution(call, 0, 3, results);
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  const bool wide = dtype == DType::kF64;
  const DType kind = wide ? DType::kF64 : DType::kF32;
  const int kept = wide ? 52 : 23;
  // In one line to the end, since no loop goes through a reshape: the bits are nowhere in memory.
  const Dims dims = ToDims(Attr<kAttrs, "shape">(call.attrs));
  Value bits = RandomBits(b, call.operands[0], {CountOf(dims)}, wide ? DType::kU64 : DType::kU32);
  if (!b.ok()) return absl::OkStatus();
  bits = Call(b, kOp_shift_right_logical, {bits, FullLike(b, bits, (wide ? 64 : 32) - kept)});
  // (k + 1/2) 2^(1 - kept) - 1: symmetric, never -1 or 1, exact.
  Value u = Add(b, Mul(b, Add(b, Convert(b, bits, kind), 0.5), std::ldexp(1.0, 1 - kept)), -1);
  Value z = Mul(b, Unary(b, kOp_erf_inv, u), 1.41421356237309504880 * Attr<kAttrs, "deviation">(call.attrs));
  if (Attr<kAttrs, "mean">(call.attrs) != 0) z = Add(b, z, Attr<kAttrs, "mean">(call.attrs));
  results[0] = Reshape(b, Convert(b, z, dtype), dims);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"u64[3]<0:1000> shape=[2,3]"},
                               {"u64[3]<0:1000> shape=[131] dtype=f64"},
                               {"u64[3]<0:9> shape=[0]"},
                               {"u64[3]<0:9> shape=[7] dtype=bf16"}};

}  // namespace

constinit const OpDef kOp_normal = {
    .name = "weft.normal",
    .c_name = "normal",
    .kind = Kind::kComposite,
    .doc =
        "Random numbers of the normal distribution, drawn from the context's generator: sqrt(2) erf_inv of 2^23 "
        "evenly spread points inside (-1, 1) (f64: 2^52), so that the largest f32 is 5.4 deviations away. f16 and "
        "bf16 are rounded from f32.",
    .example = "w = wf_normal(s, WF_INTS(784, 512), .deviation = 0.05);",
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
