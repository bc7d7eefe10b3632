// max over axes.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "operand"}};

constexpr Sample kSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"}, {"T[]"}, {"T[1,4] dims=[0]"}};

}  // namespace

constinit const OpDef kOp_max = {
    .name = "weft.max",
    .c_name = "max",
    .kind = Kind::kMacro,
    .doc =
        "Largest element over some axes, by default all; NaN if any is. Equal largest elements share the gradient, "
        "which is NaN where the result is, as that of PyTorch's amax and JAX's max. "
        "For the larger of two tensors see maximum.",
    .example = "y = wf_max(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .results = kResult,
    .infer = InferReduction,
    .expand = ExpandReduction<Reducer::kMax>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
