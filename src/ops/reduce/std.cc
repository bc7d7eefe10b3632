// std: standard deviation over axes.
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Value variance, Variance(call));
  results[0] = Sqrt(call.b, variance);
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kOp_std = {
    .name = "weft.std",
    .c_name = "std",
    .kind = Kind::kMacro,
    .doc =
        "Standard deviation over some axes, by default all: the root of var. Its gradient is infinite where all "
        "elements are equal.",
    .example = "y = wf_std(s, x);",
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
