// cbrt: cube root.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

// 1 / (3 y²), as a square, whose own slope at 0 is no 0 times infinity.
Value Derivative(Builder& b, const Value& x, const Value& y) { return Square(b, Div(b, 0.57735026918962576451, y)); }

// long double: glibc's double function is up to 3.7 ULP off.
double Double(double x) { return static_cast<double>(std::cbrt(static_cast<long double>(x))); }

constexpr auto kSamples = UnarySamples(0.2, 5);

}  // namespace

constinit const OpDef kOp_cbrt = {
    .name = "cbrt",
    .c_name = "cbrt",
    .doc = "Elementwise cube root, also of negative numbers; of complex ones the root of the least angle.",
    .example = "y = wf_cbrt(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kCbrt>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexCbrt>,
};

}  // namespace weft::ops
