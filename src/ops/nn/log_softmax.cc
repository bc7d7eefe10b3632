// log_softmax: x - log(sum(exp(x))) along one axis.
#include "src/ops/axes.h"
#include "src/ops/batching.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "scores"}};
constexpr AttrDef kAttrs[] = {
    {"axis", AttrType::kInt, "axis whose exponentials sum to one; negative counts from the end", false, "-1"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(AxisOfRow("axis", Attr<kAttrs, "axis">(call.attrs), call.operands[0]->rank()).status());
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// dx = g - exp(y) * sum(g): from the result alone.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& y = call.results[0];
  const Value& g = call.cotangents[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kAttrs, "axis">(call.node.attrs()), y.dims().size()));
  grads[0] = Sub(b, g, Mul(b, Exp(b, y), ReduceKeep(b, g, Reducer::kSum, axes)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.dims().size()));
  Value shifted = Sub(b, x, ReduceKeep(b, x, Reducer::kMax, axes));
  results[0] = Sub(b, shifted, Log(b, ReduceKeep(b, Exp(b, shifted), Reducer::kSum, axes)));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,7]"}, {"T[3,5,2] axis=1"}, {"T[1]"}, {"T[]"}, {"T[0,3]"}, {"T[2,1030]"}};

}  // namespace

constinit const OpDef kOp_log_softmax = {
    .name = "weft.log_softmax",
    .c_name = "log_softmax",
    .kind = Kind::kComposite,
    .doc =
        "Logarithm of softmax along one axis: x - max(x) - log(sum(exp(x - max(x)))), accurate where softmax "
        "underflows.",
    .example = "logp = wf_log_softmax(s, logits);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .batching = BatchAlong<AttrPosition<kAttrs, "axis">()>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 3e-2, .f16 = 4e-3, .absolute = 2e-6},
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
