// prod: product over axes.
#include "src/ops/reduce/counting.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};

constexpr Sample kSamples[] = {{"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"},
                               {"T[]"},    {"T[1,4] dims=[0]"},      {"bool[3,5] dims=[1]"}};

}  // namespace

constinit const OpDef kOp_prod = {
    .name = "weft.prod",
    .c_name = "prod",
    .kind = Kind::kMacro,
    .doc =
        "Product over some axes, by default all. Integers wrap, and bools count as i64. Derivatives of every order are right where elements are 0; "
        "they come from products of halves, about 7 n elements and 9 log2(n) operations for n elements.",
    .example = "y = wf_prod(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .results = kResult,
    .infer = InferCounting,
    .expand = ExpandCounting<Reducer::kProd>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6},
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
