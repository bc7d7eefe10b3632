// round_away: nearest integer, halves away from zero.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

double Double(double x) { return std::round(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_round_away = {
    .name = "round_nearest_afz",
    .c_name = "round_away",
    .doc =
        "Elementwise rounding to the nearest integer, halves away from zero, as C round(). See round for halves to "
        "even.",
    .example = "y = wf_round_away(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kRoundAway>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
};

}  // namespace weft::ops
