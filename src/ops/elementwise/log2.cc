// log2: logarithm to base 2.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

constexpr double kLn2 = 0.693147180559945309417;

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  grads[0] = Div(b, call.cotangents[0], Mul(b, call.operands[0], kLn2));
  return absl::OkStatus();
}

Value Expansion(Builder& b, const Value& x) { return Mul(b, Log(b, x), 1 / kLn2); }

double Double(double x) { return std::log2(x); }

constexpr auto kSamples = UnarySamples(0.1, 5);

}  // namespace

constinit const OpDef kOp_log2 = {
    .name = "weft.log2",
    .c_name = "log2",
    .kind = Kind::kComposite,
    .doc = "Elementwise logarithm to base 2, exact at powers of 2.",
    .example = "y = wf_log2(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .expand = ExpandUnary<Expansion>,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kLog2>,
    .reference = ReferenceUnary<Double>,
    .samples = kSamples,
    .tolerance = {.f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6},
    .absent = kPointwiseAbsent,
    .cost = Cost::kFunction,
};

}  // namespace weft::ops
