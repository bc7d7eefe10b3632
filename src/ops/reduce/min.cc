// min over axes.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "operand"}};

constexpr Sample kSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"}, {"T[]"}, {"T[1,4] dims=[0]"}};

}  // namespace

constinit const OpDef kOp_min = {
    .name = "weft.min",
    .c_name = "min",
    .kind = Kind::kMacro,
    .doc =
        "Smallest element over some axes, by default all; NaN if any is. Equal smallest elements share the gradient, "
        "which is NaN where the result is, as that of PyTorch's amin and JAX's min. "
        "For the smaller of two tensors see minimum.",
    .example = "y = wf_min(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .results = kResult,
    .infer = InferReduction,
    .expand = ExpandReduction<Reducer::kMin>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
