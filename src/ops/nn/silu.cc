// silu: x * sigmoid(x).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

// s + x s (1 - s)
Value FromSigmoid(Builder& b, const Value& s, const Value& x) { return Add(b, s, Mul(b, Mul(b, x, s), Sub(b, 1, s))); }

Value Derivative(Builder& b, const Value& x, const Value& y) { return FromSigmoid(b, Sigmoid(b, x), x); }

Value Expansion(Builder& b, const Value& x) { return Mul(b, x, Sigmoid(b, x)); }

ScalarValue LowerScalar(const ScalarCall& call) {
  const ScalarValue& x = call.operands[0];
  return call.b.Binary(ScalarOp::kMul, x, call.b.Unary(ScalarOp::kLogistic, x));
}

double Double(double x) { return x / (1.0 + std::exp(-x)); }

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
    .scalar = LowerScalar,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 2e-14, .bf16 = 2e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
};

}  // namespace weft::ops
