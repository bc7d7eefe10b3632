// var: variance over axes.
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Value variance, Variance(call));
  results[0] = variance;
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kOp_var = {
    .name = "weft.var",
    .c_name = "var",
    .kind = Kind::kMacro,
    .doc =
        "Variance over some axes, by default all: mean squared distance from the mean, over count - correction. "
        "Where that is not above 0 it is NaN, or infinite if distances are not 0, as in NumPy and PyTorch.",
    .example = "y = wf_var(s, x);",
    .operands = kVarianceOperands,
    .attrs = kVarianceAttrs,
    .results = kResult,
    .infer = InferVariance,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kVarianceSamples,
    .tolerance = kVarianceTolerance,
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
