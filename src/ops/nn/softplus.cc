// softplus: log(1 + e^x).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

Value Derivative(Builder& b, const Value& x, const Value& y) { return Sigmoid(b, x); }

Value Expansion(Builder& b, const Value& x) {
  return Add(b, Maximum(b, x, FullLike(b, x, 0)), Unary(b, kOp_log1p, Exp(b, Neg(b, Abs(b, x)))));
}

ScalarValue LowerScalar(const ScalarCall& call) {
  ScalarBuilder& b = call.b;
  const ScalarValue& x = call.operands[0];
  const ScalarValue small = b.Unary(ScalarOp::kExp, b.Unary(ScalarOp::kNeg, b.Unary(ScalarOp::kAbs, x)));
  const ScalarValue positive = b.Binary(ScalarOp::kMax, x, b.Constant(x.dtype, 0));
  return b.Binary(ScalarOp::kAdd, positive, b.Unary(ScalarOp::kLog1p, small));
}

double Double(double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }

constexpr auto kSamples = UnarySamples(-6, 6);

}  // namespace

constinit const OpDef kOp_softplus = {
    .name = "weft.softplus",
    .c_name = "softplus",
    .kind = Kind::kComposite,
    .doc = "Softplus log(1 + e^x), elementwise, computed as max(x, 0) + log1p(e^-|x|) so that it never overflows.",
    .example = "y = wf_softplus(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = GradientUnary<Derivative>,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 2e-14, .bf16 = 3e-2, .f16 = 4e-3, .absolute = 1e-7},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
