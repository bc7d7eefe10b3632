// optimization_barrier: the operands, past which no pass sees.
#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{.name = "operands",
                                     .types = kEveryType,
                                     .doc = "values that are all there before one of the results is used",
                                     .variadic = true,
                                     .group = 0}};
constexpr std::string_view kResults[] = {"results"};

absl::Status Infer(const InferCall& call, Types* results) {
  for (const Type* operand : call.operands) results->push_back(*operand);
  return absl::OkStatus();
}

// A recomputation stays apart from the computation that it would be merged with, in the gradient too: the cotangents
// pass one barrier.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Values present;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (call.wanted[i] && call.cotangents[i]) present.push_back(call.cotangents[i]);
  }
  if (present.empty()) return absl::OkStatus();
  const Values passed = CallAll(call.b, kOp_optimization_barrier, std::move(present));
  for (size_t i = 0, next = 0; i < grads.size(); ++i) {
    if (call.wanted[i] && call.cotangents[i]) grads[i] = passed[next++];
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.results.size(); ++i) call.results[i] = *call.operands[i];
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3]"}, {"T[4] T[]"}, {"T[131] i32[2,2] T[0,3]"}};

}  // namespace

constinit const OpDef kOp_optimization_barrier = {
    .name = "optimization_barrier",
    .c_name = "optimization_barrier",
    .doc =
        "The operands as they are. Nothing is merged, folded, fused or moved across: what is computed from a result is "
        "computed again, even if the same was computed from the operand.",
    .operands = kOperands,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .batching = BatchLeading,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoExample,
    .exported = false,
    .rounds_once = true,
    .opaque = true,
    .planes = InPlace,
    .on_bytes = true,
};

}  // namespace weft::ops
