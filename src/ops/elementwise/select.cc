// where: x where the condition holds, else y.
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/ops/simpler.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"condition", kB, "which one to take", false, false, 0},
                                    {"x", kEveryType, "taken where true"},
                                    {"y", kEveryType, "taken where false"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  results->back().dtype = call.operands[1]->dtype;
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Value& g = call.cotangents[0];
  Value zero = FullLike(call.b, g, 0);
  if (call.wanted[1]) grads[1] = Select(call.b, call.operands[0], g, zero);
  if (call.wanted[2]) grads[2] = Select(call.b, call.operands[0], zero, g);
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) {
  return call.b.Select(call.operands[0], call.operands[1], call.operands[2]);
}

absl::Status Reference(const ReferenceCall& call) {
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    CopyElement(*call.operands[call.operands[0]->GetInt(k) != 0 ? 1 : 2], k, call.results[0], k);
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"bool[2,3] T[2,3] T[2,3]"},
                               {"bool[4,1] T[3] T[]"},
                               {"bool[] T[5] T[5]"},
                               {"bool[0] T[0] T[1]"},
                               {"bool[131] T[131] T[131]"}};

Value Simpler(const SimplerCall& call) { return call.operands[1] == call.operands[2] ? call.operands[1] : Value(); }

}  // namespace

constinit const OpDef kOp_where = {
    .name = "select",
    .c_name = "where",
    .doc = "Elementwise choice with NumPy broadcasting of all three: x where condition is true, else y.",
    .example = "y = wf_where(s, wf_gt(s, x, zero), x, wf_mul(s, x, slope));",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = Infer,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .planes = EachPlane,
    .simpler = Simpler,
    .on_bytes = true,
};

}  // namespace weft::ops
