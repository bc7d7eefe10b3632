// div: x / y.
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber | kC, "dividend"}, {"y", kNumber | kC, "divisor"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  Value dx = Div(b, call.cotangents[0], call.operands[1]);
  if (call.wanted[0]) grads[0] = dx;
  if (call.wanted[1]) grads[1] = Neg(b, Mul(b, dx, call.results[0]));
  return absl::OkStatus();
}

double Double(double x, double y) { return x / y; }

absl::Status Reference(const ReferenceCall& call) {
  const DType dtype = call.results[0].dtype();
  if (IsFloat(dtype)) return ReferenceBinary<Double>(call);
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    const int64_t x = call.operands[0]->GetInt(k);
    const int64_t y = call.operands[1]->GetInt(k);
    int64_t z;
    if (y == 0) {
      z = -1;
    } else if (IsUnsigned(dtype)) {
      z = static_cast<int64_t>(static_cast<uint64_t>(x) / static_cast<uint64_t>(y));
    } else {
      z = y == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x / y;
    }
    call.results[0].SetInt(k, z);
  }
  return absl::OkStatus();
}

constexpr auto kSamples = BinarySamples(0.5, 4);

Value Simpler(const SimplerCall& call) { return IsUniform(call.operands[1], 1.0) ? call.operands[0] : Value(); }

}  // namespace

constinit const OpDef kOp_div = {
    .name = "divide",
    .c_name = "div",
    .doc =
        "Elementwise quotient x / y with NumPy broadcasting. Integers truncate towards zero; division by zero gives "
        "all bits one (-1), the smallest integer by -1 gives itself.",
    .example = "z = wf_div(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kDiv>,
    .reference = Reference,
    .samples = kSamples,
    .cost = Cost::kFunction,  // a division takes as long as a short polynomial
    .planes = BinaryPlanes<ComplexDiv>,
    .simpler = Simpler,
};

}  // namespace weft::ops
