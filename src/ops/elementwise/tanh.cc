// tanh: hyperbolic tangent.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Sub(b, 1, Square(b, y)); }

double Double(double x) { return static_cast<double>(std::tanh(static_cast<long double>(x))); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_tanh = {
    .name = "tanh",
    .c_name = "tanh",
    .doc = "Elementwise hyperbolic tangent.",
    .example = "y = wf_tanh(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kTanh>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexTanh>,
};

}  // namespace weft::ops
