// tan: tangent.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Add(b, Square(b, y), 1); }

double Double(double x) { return std::tan(x); }

constexpr auto kSamples = UnarySamples(-1.3, 1.3);

}  // namespace

constinit const OpDef kOp_tan = {
    .name = "tan",
    .c_name = "tan",
    .doc = "Elementwise tangent of x in radians.",
    .example = "y = wf_tan(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kTan>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13},
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexTan>,
};

}  // namespace weft::ops
