// round: nearest integer, halves to even.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

double Double(double x) { return std::nearbyint(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_round = {
    .name = "round_nearest_even",
    .c_name = "round",
    .doc = "Elementwise rounding to the nearest integer, halves to even, as NumPy and PyTorch do. See round_away.",
    .example = "y = wf_round(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kRoundEven>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
};

}  // namespace weft::ops
