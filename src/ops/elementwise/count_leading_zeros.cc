// clz: number of zero bits above the highest one.
#include <bit>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kWhole, "operand"}};

absl::Status Reference(const ReferenceCall& call) {
  const int bits = BitsOf(call.results[0].dtype());
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    const uint64_t x = static_cast<uint64_t>(call.operands[0]->GetInt(k)) & mask;
    call.results[0].SetInt(k, std::countl_zero(x) - (64 - bits));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_clz = {
    .name = "count_leading_zeros",
    .c_name = "clz",
    .doc = "Elementwise number of leading zero bits, in the operand's type; the width for 0.",
    .example = "y = wf_clz(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kClz>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .as_seen = true,
};

}  // namespace weft::ops
