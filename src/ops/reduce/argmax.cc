// argmax: where the largest element along an axis is.
#include "src/ops/reduce/extreme_index.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  return ExpandExtremeIndex(call, Reducer::kMax, results);
}

}  // namespace

constinit const OpDef kOp_argmax = {
    .name = "weft.argmax",
    .c_name = "argmax",
    .kind = Kind::kComposite,
    .doc =
        "Index of the largest element along one axis, the first of equals. NaN counts as the largest, as in "
        "NumPy.",
    .example = "label = wf_argmax(s, logits);",
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
