// cos: cosine.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  grads[0] = Neg(b, Mul(b, call.cotangents[0], Unary(b, kOp_sin, call.operands[0])));
  return absl::OkStatus();
}

double Double(double x) { return std::cos(x); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_cos = {
    .name = "cosine",
    .c_name = "cos",
    .doc = "Elementwise cosine of x in radians.",
    .example = "y = wf_cos(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kCos>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.absolute = 1e-6},
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexCos>,
};

}  // namespace weft::ops
