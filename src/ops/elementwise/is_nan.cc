// is_nan: not a number.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

Value Expansion(Builder& b, const Value& x) { return Compare(b, Direction::kNe, x, x); }

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, std::isnan(call.operands[0]->GetDouble(k)));
  }
  return absl::OkStatus();
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_is_nan = {
    .name = "weft.is_nan",
    .c_name = "is_nan",
    .kind = Kind::kComposite,
    .doc = "Elementwise test that gives bool: not a number; of a complex one either part.",
    .example = "y = wf_is_nan(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferBool,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kIsNan>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kPointwiseNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
