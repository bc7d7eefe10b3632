// any: whether some element holds.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kB, "operand"}};

constexpr Sample kSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"}, {"T[]"}, {"T[1,4] dims=[0]"}};

}  // namespace

constinit const OpDef kOp_any = {
    .name = "weft.any",
    .c_name = "any",
    .kind = Kind::kMacro,
    .doc = "Whether some element over some axes, by default all, is true. Over nothing: false.",
    .example = "y = wf_any(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .results = kResult,
    .infer = InferReduction,
    .expand = ExpandReduction<Reducer::kOr>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
