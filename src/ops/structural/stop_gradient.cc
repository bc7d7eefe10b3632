// stop_gradient: x, through which no gradient flows.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};

Value Expansion(Builder&, const Value& x) { return x; }
absl::Status Reference(const ReferenceCall& call) {
  call.results[0] = *call.operands[0];
  return absl::OkStatus();
}

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_stop_gradient = {
    .name = "weft.stop_gradient",
    .c_name = "stop_gradient",
    .kind = Kind::kComposite,
    .doc = "x itself, through which no gradient flows.",
    .example = "target = wf_stop_gradient(s, teacher);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kExpand,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kPointwiseNoGradient,
    .rounds_once = true,
    // Not cheap_again: once it is known its past may go, and a parameter's past holds all its old values.
    .alias = true,
    .on_bytes = true,
};

}  // namespace weft::ops
