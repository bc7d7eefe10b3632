// neg: -x.
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber | kC, "operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = Neg(call.b, call.cotangents[0]);
  return absl::OkStatus();
}

double Double(double x) { return -x; }
int64_t Int(int64_t x) { return static_cast<int64_t>(-static_cast<uint64_t>(x)); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_neg = {
    .name = "negate",
    .c_name = "neg",
    .doc = "Elementwise negation -x. Integers wrap.",
    .example = "y = wf_neg(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kNeg>,
    .reference = ReferenceUnary<Double, Int>,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .planes = EachPlane,
    .simpler = Involution,
};

}  // namespace weft::ops
