// rsqrt: 1 / sqrt(x).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Mul(b, Mul(b, y, Square(b, y)), -0.5); }

double Double(double x) { return 1.0 / std::sqrt(x); }

constexpr auto kSamples = UnarySamples(0.1, 5);

}  // namespace

constinit const OpDef kOp_rsqrt = {
    .name = "rsqrt",
    .c_name = "rsqrt",
    .doc = "Elementwise reciprocal square root 1 / sqrt(x), to full accuracy.",
    .example = "y = wf_rsqrt(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kRsqrt>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .absent = kNoBatching,
};

}  // namespace weft::ops
