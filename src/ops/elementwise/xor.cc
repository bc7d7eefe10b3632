// bitwise_xor: x ^ y.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kB, "first operand"}, {"y", kI | kB, "second operand"}};

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, call.operands[0]->GetInt(k) ^ call.operands[1]->GetInt(k));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_bitwise_xor = {
    .name = "xor",
    .c_name = "bitwise_xor",
    .doc = "Elementwise bitwise exclusive or with NumPy broadcasting; logical on bool.",
    .example = "z = wf_bitwise_xor(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kXor>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .commutative = true,
};

}  // namespace weft::ops
