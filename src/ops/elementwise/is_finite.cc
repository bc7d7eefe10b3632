// is_finite: neither infinite nor NaN.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}};

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, std::isfinite(call.operands[0]->GetDouble(k)));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_is_finite = {
    .name = "is_finite",
    .c_name = "is_finite",
    .doc = "Elementwise test that gives bool: neither infinite nor NaN.",
    .example = "y = wf_is_finite(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferBool,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kIsFinite>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
};

}  // namespace weft::ops
