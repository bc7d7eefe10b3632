// minimum: the smaller of x and y.
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType | kC, "first operand"}, {"y", kAnyType | kC, "second operand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& g = call.cotangents[0];
  Value equal = Compare(b, Direction::kEq, call.operands[0], call.operands[1]);
  Value zero = FullLike(b, g, 0);
  for (int i = 0; i < 2; ++i) {
    if (!call.wanted[i]) continue;
    const bool complex = IsComplex(g.dtype());
    Value lost = complex ? Compare(b, Direction::kNe, call.operands[i], call.results[0])
                         : Compare(b, Direction::kGt, call.operands[i], call.operands[1 - i]);
    grads[i] = Select(b, equal, Mul(b, g, 0.5), Select(b, lost, zero, g));
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    Accumulator result(Reducer::kMin, call.results[0].dtype());
    result.Take(*call.operands[0], k);
    result.Take(*call.operands[1], k);
    result.Store(call.results[0], k);
  }
  return absl::OkStatus();
}

constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_minimum = {
    .name = "minimum",
    .c_name = "minimum",
    .doc =
        "Elementwise minimum with NumPy broadcasting; NaN if either is. Where both are equal each gets half of the "
        "gradient; where either is NaN each gets all of it, as in PyTorch. Complex numbers are compared by their real parts first, as "
        "StableHLO has it.",
    .example = "z = wf_minimum(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kMin>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .commutative = true,
    .rounds_once = true,
    .planes = BinaryPlanes<ComplexMin>,
    .simpler = Idempotent,
};

}  // namespace weft::ops
