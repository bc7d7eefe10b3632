// argmin: where the smallest element along an axis is.
#include "src/ops/reduce/extreme_index.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  return ExpandExtremeIndex(call, Reducer::kMin, results);
}

}  // namespace

constinit const OpDef kOp_argmin = {
    .name = "weft.argmin",
    .c_name = "argmin",
    .kind = Kind::kComposite,
    .doc =
        "Index of the smallest element along one axis, the first of equals. NaN counts as the smallest, as in "
        "NumPy.",
    .example = "nearest = wf_argmin(s, distances);",
    .operands = kExtremeIndexOperands,
    .attrs = kExtremeIndexAttrs,
    .results = kResult,
    .infer = InferExtremeIndex,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kExtremeIndexSamples,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
