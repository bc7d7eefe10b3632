// all: whether every element holds.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kB, "operand"}};

constexpr Sample kSamples[] = {
    {"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"}, {"T[]"}, {"T[1,4] dims=[0]"}};

}  // namespace

constinit const OpDef kOp_all = {
    .name = "weft.all",
    .c_name = "all",
    .kind = Kind::kMacro,
    .doc = "Whether every element over some axes, by default all, is true. Over nothing: true.",
    .example = "y = wf_all(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .results = kResult,
    .infer = InferReduction,
    .expand = ExpandReduction<Reducer::kAnd>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
