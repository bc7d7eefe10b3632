// bitwise_and, bitwise_or, bitwise_xor.
#include <functional>

#include "src/ops/families.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kB, "first operand"}, {"y", kI | kB, "second operand"}};
constexpr auto kSamples = BinarySamples();

template <typename Op>
absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, Op()(call.operands[0]->GetInt(k), call.operands[1]->GetInt(k)));
  }
  return absl::OkStatus();
}

// The three operations have this in common; each says its names.
template <typename Op, ScalarOp op>
consteval OpDef Bitwise(OpDef named) {
  named.operands = kOperands;
  named.results = kResult;
  named.rule = OperandRule::kBroadcast;
  named.infer = InferSame;
  named.lowering = Lowering::kScalar;
  named.scalar = ScalarBinary<op>;
  named.reference = Reference<Op>;
  named.samples = kSamples;
  named.tolerance = kExact;
  named.absent = kNoGradient;
  named.commutative = true;
  return named;
}

}  // namespace

constinit const OpDef kOp_bitwise_and = Bitwise<std::bit_and<int64_t>, ScalarOp::kAnd>({
    .name = "and",
    .c_name = "bitwise_and",
    .doc = "Elementwise bitwise and with NumPy broadcasting; logical on bool.",
    .example = "z = wf_bitwise_and(s, x, y);",
    .simpler = Idempotent,
});
constinit const OpDef kOp_bitwise_or = Bitwise<std::bit_or<int64_t>, ScalarOp::kOr>({
    .name = "or",
    .c_name = "bitwise_or",
    .doc = "Elementwise bitwise or with NumPy broadcasting; logical on bool.",
    .example = "z = wf_bitwise_or(s, x, y);",
    .simpler = Idempotent,
});
constinit const OpDef kOp_bitwise_xor = Bitwise<std::bit_xor<int64_t>, ScalarOp::kXor>({
    .name = "xor",
    .c_name = "bitwise_xor",
    .doc = "Elementwise bitwise exclusive or with NumPy broadcasting; logical on bool.",
    .example = "z = wf_bitwise_xor(s, x, y);",
});

}  // namespace weft::ops
