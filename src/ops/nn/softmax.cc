// softmax: exp(x - max) / sum(exp(x - max)) along one axis.
#include <limits>

#include "src/ops/axes.h"
#include "src/ops/batching.h"
#include "src/ops/build.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "scores"}};
constexpr AttrDef kAttrs[] = {
    {"axis", AttrType::kInt, "axis that sums to one; negative counts from the end", false, "-1"},
    {"safe", AttrType::kBool, "a row of only -inf gives 0, and a gradient of 0, instead of NaN", false, "false"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(AxisOfRow("axis", Attr<kAttrs, "axis">(call.attrs), call.operands[0]->rank()).status());
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// dx = y * (g - sum(g * y)): from the result alone, so x need not be kept.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& y = call.results[0];
  const Value& g = call.cotangents[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kAttrs, "axis">(call.node.attrs()), y.dims().size()));
  grads[0] = Mul(b, y, Sub(b, g, ReduceKeep(b, Mul(b, g, y), Reducer::kSum, axes)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.dims().size()));
  const bool safe = Attr<kAttrs, "safe">(call.attrs);
  Value top = ReduceKeep(b, x, Reducer::kMax, axes), nothing;
  if (safe) {
    nothing = Compare(b, Direction::kEq, top, -std::numeric_limits<double>::infinity());
    top = Select(b, nothing, FullLike(b, top, 0), top);
  }
  Value e = Exp(b, Sub(b, x, top));
  Value sum = ReduceKeep(b, e, Reducer::kSum, axes);
  results[0] = Div(b, e, safe ? Select(b, nothing, FullLike(b, sum, 1), sum) : sum);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,7]"}, {"T[3,5,2] axis=1"}, {"T[1]"}, {"T[]"}, {"T[2,1030]"}, {"T[4,7] safe=true"}};

}  // namespace

constinit const OpDef kOp_softmax = {
    .name = "weft.softmax",
    .c_name = "softmax",
    .kind = Kind::kComposite,
    .doc =
        "Softmax along one axis: exp(x - max(x)) / sum(exp(x - max(x))). A row of only -inf gives NaN, as PyTorch's softmax; "
        "with safe 0, as its _safe_softmax.",
    .example = "p = wf_softmax(s, logits);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .batching = BatchAlong<AttrPosition<kAttrs, "axis">()>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-7},
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
