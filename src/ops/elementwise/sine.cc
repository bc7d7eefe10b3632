// sin: sine.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Unary(b, kOp_cos, x); }

double Double(double x) { return std::sin(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_sin = {
    .name = "sine",
    .c_name = "sin",
    .doc = "Elementwise sine of x in radians.",
    .example = "y = wf_sin(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kSin>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.absolute = 1e-6},
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexSin>,
};

}  // namespace weft::ops
