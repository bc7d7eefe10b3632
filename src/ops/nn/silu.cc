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

// Where e^x is or nears a denormal, and the logistic function is it, both factors are moved: e^(x + 32) (x e^-32).
ScalarValue LowerScalar(const ScalarCall& call) {
  ScalarBuilder& b = call.b;
  const ScalarValue& x = call.operands[0];
  const ScalarValue far = b.Binary(ScalarOp::kLt, x, b.Constant(x.dtype, x.dtype == DType::kF64 ? -600 : -64));
  const ScalarValue moved = b.Binary(ScalarOp::kAdd, x, b.Constant(x.dtype, 32));
  const ScalarValue small = b.Binary(ScalarOp::kMul, x, b.Constant(x.dtype, 1.2664165549094175723e-14));
  const ScalarValue share = b.Unary(ScalarOp::kLogistic, b.Select(far, moved, x));
  return b.Binary(ScalarOp::kMul, b.Select(far, small, x), share);
}

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
    .scalar = LowerScalar,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 2e-14, .bf16 = 2e-2, .f16 = 4e-3},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
