// std: standard deviation over axes.
#include "src/ops/reduce/variance.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Value variance, Variance(call));
  // The root of 0 has an infinite slope, and times 0 that is NaN: no slope leads through it.
  Value zero = FullLike(call.b, variance, 0);
  Value flat = Compare(call.b, Direction::kEq, variance, zero);
  results[0] = Select(call.b, flat, zero, Sqrt(call.b, Select(call.b, flat, FullLike(call.b, variance, 1), variance)));
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kOp_std = {
    .name = "weft.std",
    .c_name = "std",
    .kind = Kind::kMacro,
    .doc =
        "Standard deviation over some axes, by default all: the root of var. Its gradient is 0 where all "
        "elements are equal, as in PyTorch.",
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
