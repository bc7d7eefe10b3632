// uniform: random numbers, evenly spread.
#include <cmath>

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

absl::Status Infer(const InferCall& call, Types* results) {
  const double low = call.attrs.Double(1), high = call.attrs.Double(2);
  if (!(std::isfinite(low) && std::isfinite(high) && low < high)) {
    return UserError("low is ", low, " and high is ", high, "; both must be finite and low below high");
  }
  return InferDistribution(call, 0, 3, results);
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const double low = call.attrs.Double(1), high = call.attrs.Double(2);
  Value unit = RandomUnit(b, call.operands[0], ToDims(call.attrs.IntList(0)), call.attrs.Type(3));
  results[0] = low == 0 && high == 1 ? unit : Add(b, Mul(b, unit, high - low), low);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"ui64[3]<0:1000> shape=[2,3]"},
                               {"ui64[3]<0:1000> shape=[131] dtype=f64"},
                               {"ui64[3]<0:9> shape=[0]"},
                               {"ui64[3]<0:9> shape=[7] dtype=bf16"}};

}  // namespace

constinit const OpDef kOp_uniform = {
    .name = "weft.uniform",
    .c_name = "uniform",
    .kind = Kind::kComposite,
    .doc =
        "Random numbers evenly spread in [low, high), drawn from the context's generator: the bits of "
        "rng_bit_generator with as many leading ones as the type's significand holds.",
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
