// bitwise_not: ~x.
#include "src/ops/families.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kB, "operand"}};

absl::Status Reference(const ReferenceCall& call) {
  const bool is_bool = IsBool(call.results[0].dtype());
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    const int64_t x = call.operands[0]->GetInt(k);
    call.results[0].SetInt(k, is_bool ? x == 0 : ~x);
  }
  return absl::OkStatus();
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_bitwise_not = {
    .name = "not",
    .c_name = "bitwise_not",
    .doc = "Elementwise complement of all bits; logical not on bool.",
    .example = "y = wf_bitwise_not(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kNot>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .simpler = Involution,
};

}  // namespace weft::ops
