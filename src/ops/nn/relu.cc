// relu: max(x, 0).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber, "operand"}};

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

// Unsigned numbers are not below 0, though the image of a large u64 is.
absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  for (int64_t k = 0; k < x.count(); ++k) {
    if (IsFloat(x.dtype())) {
      call.results[0].SetDouble(k, Double(x.GetDouble(k)));
    } else if (IsUnsigned(x.dtype()) || x.GetInt(k) > 0) {
      CopyElement(x, k, call.results[0], k);
    }
  }
  return absl::OkStatus();
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_relu = {
    .name = "weft.relu",
    .c_name = "relu",
    .kind = Kind::kComposite,
    .doc =
        "Rectifier max(x, 0), elementwise; NaN stays NaN, and unsigned numbers what they are. The gradient at 0 is 0, at NaN 1.",
    .example = "y = wf_relu(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kPointwiseAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
