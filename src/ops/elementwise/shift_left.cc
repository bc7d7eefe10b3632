// shift_left: x << y.
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
    const auto x = static_cast<uint64_t>(call.operands[0]->GetInt(k));
    call.results[0].SetInt(k, by >= static_cast<uint64_t>(bits) ? 0 : static_cast<int64_t>(x << by));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_shift_left = {
    .name = "shift_left",
    .c_name = "shift_left",
    .doc =
        "Elementwise left shift with NumPy broadcasting; a shift by the width or more, or by a negative amount, gives "
        "0.",
    .example = "z = wf_shift_left(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kShl>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .as_seen = true,
};

}  // namespace weft::ops
