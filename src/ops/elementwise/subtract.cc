// sub: x - y.
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber | kC, "first operand"}, {"y", kNumber | kC, "second operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = call.cotangents[0];
  if (call.wanted[1]) grads[1] = Neg(call.b, call.cotangents[0]);
  return absl::OkStatus();
}

double Double(double x, double y) { return x - y; }
int64_t Int(int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y)); }

constexpr auto kSamples = BinarySamples();

Value Simpler(const SimplerCall& call) { return IsUniform(call.operands[1], 0.0) ? call.operands[0] : Value(); }

}  // namespace

constinit const OpDef kOp_sub = {
    .name = "subtract",
    .c_name = "sub",
    .doc = "Elementwise difference x - y with NumPy broadcasting. Integers wrap.",
    .example = "z = wf_sub(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kSub>,
    .reference = ReferenceBinary<Double, Int>,
    .samples = kSamples,
    .rounds_once = true,
    .planes = EachPlane,
    .simpler = Simpler,
};

}  // namespace weft::ops
