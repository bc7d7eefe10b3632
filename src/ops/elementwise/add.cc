// add: x + y.
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "first summand"}, {"y", kEveryType, "second summand"}};

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = grads[1] = call.cotangents[0];
  return absl::OkStatus();
}

double Add(double x, double y) { return x + y; }
int64_t AddInt(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
}

// bool: logical or, as StableHLO defines addition on i1.
absl::Status Reference(const ReferenceCall& call) {
  if (!IsBool(call.results[0].dtype())) return ReferenceBinary<Add, AddInt>(call);
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    call.results[0].SetInt(k, call.operands[0]->GetInt(k) | call.operands[1]->GetInt(k));
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3] T[2,3]"}, {"T[4,1] T[3]"}, {"T[] T[5]"}, {"T[0,3] T[0,3]"}, {"T[130] T[130]"}};

// x + -0.0 is x for every x; x + 0.0 is not for x = -0.0. Integers have one zero.
Value Simpler(const SimplerCall& call) {
  const double zero = IsFloat(call.node.type().dtype) ? -0.0 : 0.0;
  if (IsUniform(call.operands[1], zero)) return call.operands[0];
  return IsUniform(call.operands[0], zero) ? call.operands[1] : Value();
}

}  // namespace

constinit const OpDef kOp_add = {
    .name = "add",
    .c_name = "add",
    .doc = "Elementwise sum x + y with NumPy broadcasting. Integers wrap; on bool it is logical or.",
    .example = "y = wf_add(s, x, b);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kAdd>,
    .reference = Reference,
    .samples = kSamples,
    .commutative = true,
    .rounds_once = true,
    .planes = EachPlane,
    .simpler = Simpler,
};

}  // namespace weft::ops
