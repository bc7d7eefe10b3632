// sign: -1, 0 or 1.
#include "src/ops/complex.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kSI | kC, "operand"}};

// The sign of a real x is flat. The sign of a complex x turns with x: its change is i s Im(conj(s) dx) / |x| for s =
// sign x, and none at 0.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Value &x = call.operands[0], &s = call.results[0];
  if (!IsComplex(x.dtype())) return absl::OkStatus();
  Builder& b = call.b;
  const Planes along = PlanesOf(b, s);
  const Value size = Abs(b, x), zero = FullLike(b, size, 0);
  const Value turned = Neg(b, Unary(b, kOp_imag, Mul(b, call.cotangents[0], s)));
  const Value slope = Select(b, Compare(b, Direction::kEq, size, 0), zero, Div(b, turned, size));
  grads[0] = ComplexFrom(b, {Neg(b, Mul(b, slope, along.im)), Neg(b, Mul(b, slope, along.re))});
  return absl::OkStatus();
}

double Double(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
int64_t Int(int64_t x) { return (x > 0) - (x < 0); }

constexpr auto kSamples = UnarySamples();

}  // namespace

constinit const OpDef kOp_sign = {
    .name = "sign",
    .c_name = "sign",
    .doc = "Elementwise sign: -1, 0 or 1; -0 and NaN stay themselves. Of a complex number it is x / |x|, 0 at 0.",
    .example = "y = wf_sign(s, x);",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarUnary<ScalarOp::kSign>,
    .reference = ReferenceUnary<Double, Int>,
    .samples = kSamples,
    .tolerance = kExact,
    .planes = UnaryPlanes<ComplexSign>,
};

}  // namespace weft::ops
