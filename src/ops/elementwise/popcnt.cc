// popcount: number of bits that are 1.
#include <bit>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kWhole, "operand"}};

absl::Status Reference(const ReferenceCall& call) {
  const DType dtype = call.results[0].dtype();
  const uint64_t mask = BitsOf(dtype) == 64 ? ~uint64_t{0} : (uint64_t{1} << BitsOf(dtype)) - 1;
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, std::popcount(static_cast<uint64_t>(call.operands[0]->GetInt(k)) & mask));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_popcount = {
    .name = "popcnt",
    .c_name = "popcount",
    .doc = "Elementwise number of one bits, in the operand's type.",
    .example = "y = wf_popcount(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kPopcount>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .as_seen = true,
};

}  // namespace weft::ops
