// bitwise_and: x & y.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kB, "first operand"}, {"y", kI | kB, "second operand"}};

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, call.operands[0]->GetInt(k) & call.operands[1]->GetInt(k));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_bitwise_and = {
    .name = "and",
    .c_name = "bitwise_and",
    .doc = "Elementwise bitwise and with NumPy broadcasting; logical on bool.",
    .example = "z = wf_bitwise_and(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kAnd>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .commutative = true,
};

}  // namespace weft::ops
