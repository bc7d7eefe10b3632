// log: natural logarithm.
#include <cmath>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = Div(call.b, call.cotangents[0], call.operands[0]);
  return absl::OkStatus();
}

double Double(double x) { return std::log(x); }

constexpr auto kSamples = UnarySamples(0.1, 5);

}  // namespace

constinit const OpDef kOp_log = {
    .name = "log",
    .c_name = "log",
    .doc = "Elementwise natural logarithm. log(0) is -inf, of negative numbers NaN.",
    .example = "y = wf_log(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kLog>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.absolute = 1e-6},
    .cost = Cost::kFunction,
    .planes = UnaryPlanes<ComplexLog>,
};

}  // namespace weft::ops
