// How the engine records one operation under its lock, inlined into each of its doors: recording is a hot path.
#pragma once

#include <vector>

#include "absl/base/attributes.h"
#include "src/lazy/engine.h"
#include "src/lazy/value/index_check.h"
#include "src/ops/collective/processes.h"

namespace weft::lazy {

template <typename PlaceFn>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline absl::StatusOr<Place> Engine::PlaceAfterCut(Lock& lock, PlaceFn&& place_of) {
  WEFT_ASSIGN_OR_RETURN(const Place place, place_of());
  if (place.frame == nullptr) WEFT_RETURN_IF_ERROR(evaluator_.CutIfDue(lock, *place.state));
  if (lock.opened() > 0) return place_of();
  return place;
}

// Inlined, because recording is a hot path. An operation that fails has drawn nothing.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline absl::Status Engine::RecordLocked(Lock& lock, const ir::OpDef& op,
                                                                      std::span<Tensor* const> operands,
                                                                      ir::Attrs&& attrs, ir::Location location,
                                                                      const Where& where, ir::RegionSpan regions,
                                                                      Tensors* made, Recorder::Draw* drawn) {
  WEFT_ASSIGN_OR_RETURN(const Place place,
                        PlaceAfterCut(lock, [&] { return recorder_.PlaceOf(op, operands, location, where); }));
  if (!regions.empty() && !place.state->mesh.alone()) {
    for (const Ref<const ir::Function>& region : regions) {
      const absl::Status suits = ops::CheckAxes(place.state->mesh.axes(), *region);
      if (!suits.ok()) return WithPosition(suits, location);
    }
  }
  const bool check = options_.mode == Mode::kDebug && place.frame == nullptr;
  std::vector<ir::Value> kept;  // operands, for the checks of debug mode
  ir::Values asked;             // the node's own, of one that carries functions
  if (check) {
    for (const Tensor* operand : operands) kept.push_back(operand != nullptr ? operand->value() : ir::Value());
  }
  const ir::Attrs said = options_.mode == Mode::kDebug ? attrs : ir::Attrs();
  ir::Builder b(location);
  ir::Values out = recorder_.Operation(b, place.frame, op, operands, std::move(attrs), regions, drawn);
  if (!b.ok()) return WithPosition(b.status(), location);
  const bool steps = check && op.calls;
  if (check && !regions.empty() && !out.empty()) {
    const auto all = out[0].node->operands();
    asked.assign(all.begin(), all.end());
  }
  absl::Status status =
      steps ? evaluator_.inspector().StepThrough(lock, *place.state, &out) : Finish(lock, place, b, &op, out);
  if (status.ok() && check && op.indices != nullptr) {
    IndexCheck indices(op, kept, said);
    status = lock.Open([&] { return indices.Run(); });
  }
  if (status.ok() && check && !steps) {
    status = evaluator_.inspector().Check(lock, op, kept, out);
    if (!status.ok() && !asked.empty())
      status = evaluator_.inspector().Narrowed(lock, *place.state, *out[0].node, asked, std::move(status));
  }
  if (!status.ok()) {
    recorder_.Undraw(*drawn);
    return WithPosition(std::move(status), location);
  }
  recorder_.Publish(place, std::span<ir::Value>(out.data(), out.size()), location, made);
  return absl::OkStatus();
}

}  // namespace weft::lazy
