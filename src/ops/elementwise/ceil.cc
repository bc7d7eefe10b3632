// ceil: smallest integer not below x.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

double Double(double x) { return std::ceil(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_ceil = {
    .name = "ceil",
    .c_name = "ceil",
    .doc = "Elementwise ceiling, as a float. Its gradient is zero everywhere, so none flows.",
    .example = "y = wf_ceil(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kCeil>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
};

}  // namespace weft::ops
