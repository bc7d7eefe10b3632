// expm1: e^x - 1.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Add(b, y, 1); }

double Double(double x) { return std::expm1(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_expm1 = {
    .name = "exponential_minus_one",
    .c_name = "expm1",
    .doc = "Elementwise e^x - 1, exact near 0.",
    .example = "y = wf_expm1(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kExpm1>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexExpm1>,
};

}  // namespace weft::ops
