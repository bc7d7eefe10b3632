// abs: |x|.
#include <cmath>

#include "src/ops/complex.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kSI | kC, "operand"}};

absl::Status Infer(const InferCall& call, Types* results) {
  results->push_back(Type::Tensor(PartOf(call.operands[0]->dtype), call.operands[0]->dims));
  return absl::OkStatus();
}

// The modulus of a complex x grows along x: |x| changes by the real part of conj(sign x) dx.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &g = call.cotangents[0], sign = Unary(b, kOp_sign, call.operands[0]);
  if (!IsComplex(call.operands[0].dtype())) {
    grads[0] = Mul(b, g, sign);
    return absl::OkStatus();
  }
  const Planes along = PlanesOf(b, sign);
  grads[0] = ComplexFrom(b, {Mul(b, g, along.re), Neg(b, Mul(b, g, along.im))});
  return absl::OkStatus();
}

double Double(double x) { return std::fabs(x); }
int64_t Int(int64_t x) { return x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x; }

constexpr auto kSamples = UnarySamples();

Splits OnPlanes(const PlanesCall& call) { return Real(ComplexAbs(call.b, call.planes(0))); }

}  // namespace

constinit const OpDef kOp_abs = {
    .name = "abs",
    .c_name = "abs",
    .doc =
        "Elementwise absolute value. The smallest integer stays itself. The gradient at 0 is 0. Of a complex number it is the length, real.",
    .example = "y = wf_abs(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kAbs>,
    .reference = ReferenceUnary<Double, Int>,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .planes = OnPlanes,
};

}  // namespace weft::ops
