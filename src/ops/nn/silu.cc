// silu: x * sigmoid(x).
#include <cmath>

#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

// s + x s (1 - s)
Value FromSigmoid(Builder& b, const Value& s, const Value& x) { return Add(b, s, Mul(b, Mul(b, x, s), Sub(b, 1, s))); }

Value Derivative(Builder& b, const Value& x, const Value& y) { return FromSigmoid(b, Sigmoid(b, x), Held(b, x, 1000)); }

Value Expansion(Builder& b, const Value& x) { return Mul(b, x, Sigmoid(b, x)); }

double Double(double x) { return x < 0 ? x * std::exp(x) / (1 + std::exp(x)) : x / (1 + std::exp(-x)); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_silu = {
    .name = "weft.silu",
    .c_name = "silu",
    .kind = Kind::kComposite,
    .doc = "Sigmoid linear unit (swish) x / (1 + e^-x), elementwise. Source: Elfwing, Uchibe, Doya (2017).",
    .example = "y = wf_silu(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kSilu>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 2e-14, .bf16 = 2e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
