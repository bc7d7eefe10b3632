// relu6: min(max(x, 0), 6).
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value& g = call.cotangents[0];
  Value outside = Either(b, Compare(b, Direction::kLe, x, 0), Compare(b, Direction::kGe, x, 6));
  grads[0] = Select(b, outside, FullLike(b, g, 0), g);  // NaN: g
  return absl::OkStatus();
}

Value Expansion(Builder& b, const Value& x) { return Minimum(b, Maximum(b, x, FullLike(b, x, 0)), FullLike(b, x, 6)); }

ScalarValue LowerScalar(const ScalarCall& call) {
  ScalarBuilder& b = call.b;
  const ScalarValue& x = call.operands[0];
  return b.Binary(ScalarOp::kMin, b.Binary(ScalarOp::kMax, x, b.Constant(x.dtype, 0)), b.Constant(x.dtype, 6));
}

double Double(double x) { return std::isnan(x) ? x : std::fmin(std::fmax(x, 0), 6); }

constexpr auto kSamples = UnarySamples(-8, 12);

}  // namespace

constinit const OpDef kOp_relu6 = {
    .name = "weft.relu6",
    .c_name = "relu6",
    .kind = Kind::kComposite,
    .doc =
        "Rectifier capped at 6: min(max(x, 0), 6), elementwise; NaN stays NaN. The gradient at 0 and at 6 is 0, at NaN 1. Source: Krizhevsky, Convolutional Deep Belief "
        "Networks (2010).",
    .example = "y = wf_relu6(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kPointwiseAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
