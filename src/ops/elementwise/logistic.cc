// sigmoid: 1 / (1 + e^-x).
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Mul(b, y, Sub(b, 1, y)); }

double Double(double x) { return 1.0 / (1.0 + std::exp(-x)); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_sigmoid = {
    .name = "logistic",
    .c_name = "sigmoid",
    .doc = "Elementwise logistic function 1 / (1 + e^-x).",
    .example = "y = wf_sigmoid(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kLogistic>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexSigmoid>,
};

}  // namespace weft::ops
