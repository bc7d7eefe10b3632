// Updates: code that records many operations as one (optimizers), see update.h.
#include "absl/strings/str_cat.h"
#include "src/ir/text.h"
#include "src/lazy/record/recorder.h"

namespace weft::lazy {

absl::StatusOr<Place> Recorder::PlaceOfUpdate(std::span<Tensor* const> operands, std::span<Tensor* const> targets,
                                              ir::Location location) {
  WEFT_RETURN_IF_ERROR(CheckTensor(targets[0], "update: target 0"));
  const Placement& place = targets[0]->sharding_;
  WEFT_ASSIGN_OR_RETURN(MeshState * state, CheckPlace(place));
  for (size_t i = 0; i < operands.size() + targets.size(); ++i) {
    const Tensor* tensor = i < operands.size() ? operands[i] : targets[i - operands.size()];
    if (tensor == nullptr && i < operands.size()) continue;
    WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "update: a tensor"));
    WEFT_RETURN_IF_ERROR(CheckProgram(tensor->frame_.get(), "an optimizer's update"));
    if (!(tensor->sharding_ == place)) {
      return WithPosition(
          UserError("update: tensors are on ", place.mesh().name(), " and ", tensor->sharding_.mesh().name()),
          location);
    }
  }
  return Place{state};
}

Recorder::Scalars Recorder::ScalarsOf(std::span<const double> scalars, std::span<Tensor* const> operands,
                                      std::span<Tensor* const> targets) {
  const auto wide = [](const Tensor* tensor) { return tensor != nullptr && PartOf(tensor->dtype()) == DType::kF64; };
  const bool f64 = std::ranges::any_of(operands, wide) || std::ranges::any_of(targets, wide);
  Scalars leaves;
  leaves.f32.reserve(scalars.size());
  for (double scalar : scalars) {
    const uint32_t word = __builtin_bit_cast(uint32_t, static_cast<float>(scalar));
    leaves.f32.push_back(NewLeaf(ir::Type::Scalar(DType::kF32), MakeRef<Data>(std::span(&word, 1))));
    if (!f64) continue;
    const auto bits = __builtin_bit_cast(uint64_t, scalar);
    const uint32_t words[] = {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
    leaves.f64.push_back(NewLeaf(ir::Type::Scalar(DType::kF64), MakeRef<Data>(std::span<const uint32_t>(words))));
  }
  return leaves;
}

absl::StatusOr<std::vector<ir::Value>> Recorder::Update(ir::Builder& b, std::span<Tensor* const> operands,
                                                        const Scalars& scalars, std::span<Tensor* const> targets,
                                                        ir::Location location, const UpdateRule& rule) {
  std::vector<ir::Value> values;
  for (const Tensor* operand : operands) values.push_back(ValueIn(nullptr, operand));
  std::vector<ir::Value> out(targets.size());
  WEFT_RETURN_IF_ERROR(rule.Build(UpdateCall{b, values, scalars.f32, scalars.f64, out}));
  if (!b.ok()) return WithPosition(b.status(), location);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!out[i] || !(out[i].type() == targets[i]->type())) {
      return InternalError("update: target ", i, " of type ", ir::ShortType(targets[i]->type()), " gets ",
                           out[i] ? ir::ShortType(out[i].type()) : "nothing");
    }
    out[i] = Detached(b, out[i], targets[i]->state.requires_grad);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return out;
}

}  // namespace weft::lazy
