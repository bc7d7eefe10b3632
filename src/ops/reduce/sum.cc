// sum over axes.
#include "src/ops/reduce/counting.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};

constexpr Sample kSamples[] = {{"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"},
                               {"T[]"},    {"T[1,4] dims=[0]"},      {"bool[3,5] dims=[1]"}};

}  // namespace

constinit const OpDef kOp_sum = {
    .name = "weft.sum",
    .c_name = "sum",
    .kind = Kind::kMacro,
    .doc = "Sum over some axes, by default all. f16 and bf16 add up in f32; integers wrap, and bools count as i64.",
    .example = "y = wf_sum(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .results = kResult,
    .infer = InferCounting,
    .expand = ExpandCounting<Reducer::kSum>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6},
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
