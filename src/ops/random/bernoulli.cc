// bernoulli: random yes and no.
#include "src/ops/random/bits.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {kState};
constexpr AttrDef kAttrs[] = {
    {"shape", AttrType::kInts, "result shape", true},
    {"probability", AttrType::kDouble, "of true, 0 to 1", false, "0.5"},
};

absl::Status Infer(const InferCall& call, Types* results) {
  const double p = Attr<kAttrs, "probability">(call.attrs);
  if (!(p >= 0 && p <= 1)) return UserError("probability is ", p, "; it must be 0 to 1");
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[0]));
  results->push_back(Type::Tensor(DType::kBool, ToDims(Attr<kAttrs, "shape">(call.attrs))));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Value unit = RandomUnit(b, call.operands[0], ToDims(Attr<kAttrs, "shape">(call.attrs)), DType::kF32);
  results[0] = Compare(b, Direction::kLt, unit, Attr<kAttrs, "probability">(call.attrs));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"u64[3]<0:1000> shape=[2,3]"}, {"u64[3]<0:1000> shape=[131] probability=0.1"}, {"u64[3]<0:9> shape=[0]"}};

}  // namespace

constinit const OpDef kOp_bernoulli = {
    .name = "weft.bernoulli",
    .c_name = "bernoulli",
    .kind = Kind::kComposite,
    .doc =
        "Random bools, true with the given probability, drawn from the context's generator. The probability is part "
        "of the program.",
    .example = "mask = wf_bernoulli(s, WF_INTS(64), .probability = 0.9);",
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
