// relu: max(x, 0).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kSI, "operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& g = call.cotangents[0];
  grads[0] = Select(b, Compare(b, Direction::kLe, call.results[0], 0), FullLike(b, g, 0), g);  // NaN: g
  return absl::OkStatus();
}

Value Expansion(Builder& b, const Value& x) { return Maximum(b, x, FullLike(b, x, 0)); }

ScalarValue LowerScalar(const ScalarCall& call) {
  return call.b.Binary(ScalarOp::kMax, call.operands[0], call.b.Constant(call.operands[0].dtype, 0));
}

double Double(double x) { return std::isnan(x) ? x : std::fmax(x, 0); }
int64_t Int(int64_t x) { return x > 0 ? x : 0; }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_relu = {
    .name = "weft.relu",
    .c_name = "relu",
    .kind = Kind::kComposite,
    .doc = "Rectifier max(x, 0), elementwise; NaN stays NaN. The gradient at 0 is 0, at NaN 1.",
    .example = "y = wf_relu(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = ReferenceUnary<Double, Int>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kPointwiseAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
