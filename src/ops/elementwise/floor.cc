// floor: largest integer not above x.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

double Double(double x) { return std::floor(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_floor = {
    .name = "floor",
    .c_name = "floor",
    .doc = "Elementwise floor, as a float. Its gradient is zero everywhere, so none flows.",
    .example = "y = wf_floor(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kFloor>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
};

}  // namespace weft::ops
