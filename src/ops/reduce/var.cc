// var: variance over axes.
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  if (IsComplex(call.operands[0].dtype())) {
    WEFT_ASSIGN_OR_RETURN(results[0], ComplexVariance(b, call.operands[0], call.attrs));
    return b.status();
  }
  WEFT_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(b, call.operands[0], call.attrs));
  results[0] = Reshape(b, spread.square.Plain(b), spread.dims);
  return absl::OkStatus();
}

// The expansion has two ways; the gradient of one of them would be infinite times 0. So var has a rule of its own.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  if (IsComplex(call.operands[0].dtype())) {
    WEFT_ASSIGN_OR_RETURN(grads[0],
                          ComplexVarianceGradient(b, call.operands[0], call.cotangents[0], call.node.attrs()));
    return b.status();
  }
  WEFT_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(b, call.operands[0], call.node.attrs()));
  WEFT_RETURN_IF_ERROR(b.status());
  Value g = Reshape(b, call.cotangents[0], spread.square.scale.dims());
  grads[0] = Mul(b, spread.centered, Mul(b, g, 2 * spread.share));
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kOp_var = {
    .name = "weft.var",
    .c_name = "var",
    .kind = Kind::kComposite,
    .doc =
        "Variance over some axes, by default all: mean squared distance from the mean, over count - correction. "
        "Where that is not above 0 it is NaN, or infinite if distances are not 0, as in NumPy and PyTorch. Of complex "
        "numbers it is real.",
    .example = "y = wf_var(s, x);",
    .operands = kVarianceOperands,
    .attrs = kVarianceAttrs,
    .results = kResult,
    .infer = InferVariance,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kVarianceSamples,
    .tolerance = kVarianceTolerance,
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
