// exp: e^x.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return y; }

double Double(double x) { return std::exp(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_exp = {
    .name = "exponential",
    .c_name = "exp",
    .doc = "Elementwise exponential e^x.",
    .example = "y = wf_exp(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kExp>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexExp>,
};

}  // namespace weft::ops
