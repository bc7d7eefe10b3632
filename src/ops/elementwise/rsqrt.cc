// rsqrt: 1 / sqrt(x).
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

// -g y^3 / 2, with the cotangent first: y^3 alone vanishes in f32 from x = 1e25 on, where norms of large numbers are at home.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& y = call.results[0];
  grads[0] = Mul(b, Mul(b, Mul(b, call.cotangents[0], y), y), Mul(b, y, -0.5));
  return absl::OkStatus();
}

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
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kRsqrt>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .cost = Cost::kFunction,  // as long as a division
    .planes = UnaryPlanes<ComplexRsqrt>,
};

}  // namespace weft::ops
