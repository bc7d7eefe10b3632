// atan2: the angle of the point (y, x).
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "ordinate"}, {"y", kF, "abscissa"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& y = call.operands[0];
  const Value& x = call.operands[1];
  Value scaled = Div(b, call.cotangents[0], Add(b, Square(b, x), Square(b, y)));
  if (call.wanted[0]) grads[0] = Mul(b, scaled, x);
  if (call.wanted[1]) grads[1] = Neg(b, Mul(b, scaled, y));
  return absl::OkStatus();
}

double Double(double x, double y) { return std::atan2(x, y); }

constexpr auto kSamples = BinarySamples(0.2, 3);

}  // namespace

constinit const OpDef kOp_atan2 = {
    .name = "atan2",
    .c_name = "atan2",
    .doc =
        "Elementwise angle of the point with ordinate x and abscissa y in (-pi, pi], as C atan2(x, y), with NumPy "
        "broadcasting.",
    .example = "z = wf_atan2(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kAtan2>,
    .reference = ReferenceBinary<Double>,
    .samples = kSamples,
    .absent = kNoBatching,
};

}  // namespace weft::ops
