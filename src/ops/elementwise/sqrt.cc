// sqrt: square root.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Div(b, 0.5, y); }

double Double(double x) { return std::sqrt(x); }

constexpr auto kSamples = UnarySamples(0.1, 5);

}  // namespace

constinit const OpDef kOp_sqrt = {
    .name = "sqrt",
    .c_name = "sqrt",
    .doc = "Elementwise square root; NaN for negative numbers. The gradient at 0 is infinite.",
    .example = "y = wf_sqrt(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kSqrt>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,  // as long as a division
    .planes = UnaryPlanes<ComplexSqrt>,
};

}  // namespace weft::ops
