// rem: remainder of x / y.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber, "dividend"}, {"y", kNumber, "divisor"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& g = call.cotangents[0];
  grads[0] = g;
  if (call.wanted[1]) {
    // x / y may round up to the next whole number; what the remainder leaves is near one.
    Value whole = Unary(b, kOp_round, Div(b, Sub(b, call.operands[0], call.results[0]), call.operands[1]));
    grads[1] = Neg(b, Mul(b, g, whole));
  }
  return absl::OkStatus();
}

double Double(double x, double y) { return std::fmod(x, y); }

absl::Status Reference(const ReferenceCall& call) {
  const DType dtype = call.results[0].dtype();
  if (IsFloat(dtype)) return ReferenceBinary<Double>(call);
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    const int64_t x = call.operands[0]->GetInt(k);
    const int64_t y = call.operands[1]->GetInt(k);
    int64_t z;
    if (y == 0) {
      z = x;
    } else if (IsUnsigned(dtype)) {
      z = static_cast<int64_t>(static_cast<uint64_t>(x) % static_cast<uint64_t>(y));
    } else {
      z = y == -1 ? 0 : x % y;
    }
    call.results[0].SetInt(k, z);
  }
  return absl::OkStatus();
}

constexpr auto kSamples = BinarySamples(0.5, 4);

}  // namespace

constinit const OpDef kOp_rem = {
    .name = "remainder",
    .c_name = "rem",
    .doc =
        "Elementwise remainder with the sign of the dividend, as C fmod and %, with NumPy broadcasting. Integers: the "
        "remainder by zero is x, by -1 is 0.",
    .example = "z = wf_rem(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kRem>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = {.absolute = 1e-6},
    .cost = Cost::kFunction,  // a division takes as long as a short polynomial
};

}  // namespace weft::ops
