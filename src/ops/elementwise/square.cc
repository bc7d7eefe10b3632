// square: x * x.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber | kC, "operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  grads[0] = Mul(b, call.cotangents[0], Add(b, call.operands[0], call.operands[0]));
  return absl::OkStatus();
}

Value Expansion(Builder& b, const Value& x) { return Mul(b, x, x); }

ScalarValue LowerScalar(const ScalarCall& call) {
  return call.b.Binary(ScalarOp::kMul, call.operands[0], call.operands[0]);
}

double Double(double x) { return x * x; }
int64_t Int(int64_t x) { return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x)); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_square = {
    .name = "weft.square",
    .c_name = "square",
    .kind = Kind::kComposite,
    .doc = "Elementwise square x * x: cheaper than pow(x, 2), which has to take any exponent.",
    .example = "y = wf_square(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = ReferenceUnary<Double, Int>,
    .samples = kSamples,
    .absent = kPointwiseAbsent,
};

}  // namespace weft::ops
