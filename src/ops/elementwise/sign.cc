// sign: -1, 0 or 1.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kSI | kC, "operand"}};

double Double(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
int64_t Int(int64_t x) { return (x > 0) - (x < 0); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_sign = {
    .name = "sign",
    .c_name = "sign",
    .doc = "Elementwise sign: -1, 0 or 1; -0 and NaN stay themselves.",
    .example = "y = wf_sign(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kSign>,
    .reference = ReferenceUnary<Double, Int>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
};

}  // namespace weft::ops
