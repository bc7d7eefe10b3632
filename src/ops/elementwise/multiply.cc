// mul: x * y.
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "first operand"}, {"y", kEveryType, "second operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Value& g = call.cotangents[0];
  if (call.wanted[0]) grads[0] = Mul(call.b, g, call.operands[1]);
  if (call.wanted[1]) grads[1] = Mul(call.b, g, call.operands[0]);
  return absl::OkStatus();
}

double Double(double x, double y) { return x * y; }
int64_t Int(int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y)); }

constexpr auto kSamples = BinarySamples();

Value Simpler(const SimplerCall& call) {
  if (IsUniform(call.operands[1], 1.0)) return call.operands[0];
  return IsUniform(call.operands[0], 1.0) ? call.operands[1] : Value();
}

}  // namespace

constinit const OpDef kOp_mul = {
    .name = "multiply",
    .c_name = "mul",
    .doc = "Elementwise product x * y with NumPy broadcasting. Integers wrap; on bool it is logical and.",
    .example = "z = wf_mul(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kMul>,
    .reference = ReferenceBinary<Double, Int>,
    .samples = kSamples,
    .commutative = true,
    .rounds_once = true,
    .planes = BinaryPlanes<ComplexMul>,
    .simpler = Simpler,
};

}  // namespace weft::ops
