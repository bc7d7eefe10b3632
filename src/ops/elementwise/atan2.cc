// atan2: the angle of the point (y, x).
#include <cmath>
#include <limits>

#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "ordinate"}, {"y", kF | kC, "abscissa"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  // d/dy = x / (x^2 + y^2) and d/dx = -y / (x^2 + y^2), of x and y over their larger one: the squares would overflow from
  // 1e19 on in f32 and vanish below 1e-23. Any scale gives the same, so it has no slope of its own. 0 at the origin and where one of
  // them is infinite, in every order.
  const Value& y = call.operands[0];
  const Value& x = call.operands[1];
  if (IsComplex(x.dtype())) {
    const Value g = Div(b, call.cotangents[0], Add(b, Square(b, x), Square(b, y)));
    if (call.wanted[0]) grads[0] = Mul(b, g, x);
    if (call.wanted[1]) grads[1] = Neg(b, Mul(b, g, y));
    return absl::OkStatus();
  }
  Value larger = Maximum(b, Abs(b, x), Abs(b, y));
  Value zero = FullLike(b, x, 0);
  Value one = FullLike(b, x, 1);
  Value infinite = Compare(b, Direction::kEq, larger, std::numeric_limits<double>::infinity());
  Value still = Select(b, infinite, infinite, Compare(b, Direction::kEq, larger, 0));
  Value usable = And(b, Compare(b, Direction::kGt, larger, 0), Unary(b, kOp_is_finite, larger));
  Value scale = Unary(b, kOp_stop_gradient, Select(b, usable, larger, one));
  Value xs = Div(b, Select(b, still, zero, x), scale), ys = Div(b, Select(b, still, zero, y), scale);
  Value square = Select(b, still, one, Add(b, Square(b, xs), Square(b, ys)));
  Value g = Select(b, still, zero, Div(b, Div(b, call.cotangents[0], scale), square));
  if (call.wanted[0]) grads[0] = Mul(b, g, xs);
  if (call.wanted[1]) grads[1] = Neg(b, Mul(b, g, ys));
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
        "broadcasting. At the origin all derivatives are 0. Of complex numbers it is -i log((y + i x) / sqrt(x^2 + y^2)).",
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
    .cost = Cost::kFunction,
    .planes = BinaryPlanes<ComplexAtan2>,
};

}  // namespace weft::ops
