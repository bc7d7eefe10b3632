// shift_right_arithmetic: x >> y with copies of the sign coming in.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kWhole, "first operand"}, {"y", kI | kWhole, "number of bits"}};

absl::Status Reference(const ReferenceCall& call) {
  const DType dtype = call.results[0].dtype();
  const int bits = BitsOf(dtype);
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    const auto by = static_cast<uint64_t>(call.operands[1]->GetInt(k));  // negative amounts are too large
    // The image of an unsigned element is zero-extended: its highest bit has to be spread first.
    const auto x =
        static_cast<int64_t>(static_cast<uint64_t>(call.operands[0]->GetInt(k)) << (64 - bits)) >> (64 - bits);
    call.results[0].SetInt(k, x >> (by >= static_cast<uint64_t>(bits) ? bits - 1 : by));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_shift_right_arithmetic = {
    .name = "shift_right_arithmetic",
    .c_name = "shift_right_arithmetic",
    .doc =
        "Elementwise right shift that copies the highest bit, with NumPy broadcasting; a shift by the width or more, "
        "or by a negative amount, leaves only copies of it.",
    .example = "z = wf_shift_right_arithmetic(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kShrArithmetic>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .as_seen = true,
};

}  // namespace weft::ops
