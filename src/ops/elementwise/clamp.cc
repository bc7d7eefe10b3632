// clamp: x held between two bounds.
#include "src/ops/families.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"low", kAnyType, "lower bound"}, {"x", kAnyType, "operand"}, {"high", kAnyType, "upper bound"}};

// The bound that holds gets the gradient; x gets it where neither does, half of it where it is equal to one. Bounds that are
// equal or crossed leave x and low no room: then the result is high, whatever they are. NaN goes to all that it was compared with,
// as by maximum and minimum.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& g = call.cotangents[0];
  const Value& low = call.operands[0];
  const Value& x = call.operands[1];
  const Value& high = call.operands[2];
  Value zero = FullLike(b, g, 0), half = Mul(b, g, 0.5);
  Value below = Compare(b, Direction::kLt, x, low), above = Compare(b, Direction::kGt, x, high);
  Value on_low = Compare(b, Direction::kEq, x, low), on_high = Compare(b, Direction::kEq, x, high);
  Value closed = Compare(b, Direction::kGe, low, high);
  Value nan = Either(b, IsNan(b, x), IsNan(b, low));
  if (call.wanted[0]) {
    Value open = Select(b, closed, zero, Select(b, below, g, Select(b, on_low, half, zero)));
    grads[0] = Select(b, nan, g, open);
  }
  if (call.wanted[1]) {
    Value inside = Select(b, Either(b, on_low, on_high), half, g);
    grads[1] = Select(b, nan, g, Select(b, Either(b, closed, Either(b, below, above)), zero, inside));
  }
  if (call.wanted[2]) {
    Value all = Either(b, Either(b, closed, above), Either(b, nan, IsNan(b, high)));
    grads[2] = Select(b, all, g, Select(b, on_high, half, zero));
  }
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) {
  return call.b.Binary(ScalarOp::kMin, call.b.Binary(ScalarOp::kMax, call.operands[1], call.operands[0]),
                       call.operands[2]);
}

absl::Status Reference(const ReferenceCall& call) {
  const DType dtype = call.results[0].dtype();
  HostTensor inner(dtype, {1});
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    Accumulator larger(Reducer::kMax, dtype);
    larger.Take(*call.operands[0], k);
    larger.Take(*call.operands[1], k);
    larger.Store(inner, 0);
    Accumulator result(Reducer::kMin, dtype);
    result.Take(inner, 0);
    result.Take(*call.operands[2], k);
    result.Store(call.results[0], k);
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3] T[2,3] T[2,3]"}, {"T[] T[5] T[]"}, {"T[3] T[4,3] T[4,1]"}, {"T[] T[0] T[]"}, {"T[] T[131] T[131]"}};

}  // namespace

constinit const OpDef kOp_clamp = {
    .name = "clamp",
    .c_name = "clamp",
    .doc =
        "Elementwise min(max(x, low), high) with NumPy broadcasting; StableHLO's order of operands. high wins where "
        "it is below low. NaN stays NaN. Where x is equal to a bound each gets "
        "half of the gradient, as from minimum and maximum; where one is NaN each that it was compared with gets all of it.",
    .example = "y = wf_clamp(s, zero, x, six);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
};

}  // namespace weft::ops
