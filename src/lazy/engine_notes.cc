// The doors whose calls a step is made of: each asks the replay first whether the call comes as before.
#include <vector>

#include "src/lazy/engine_record.h"
#include "src/ops/call.h"
#include "src/runtime/float_environment.h"

namespace weft::lazy {
namespace {

bool InBody(std::span<Tensor* const> tensors) {
  for (const Tensor* tensor : tensors) {
    if (tensor != nullptr && tensor->frame() != nullptr) return true;
  }
  return false;
}

}  // namespace

bool Engine::Defer(const Replay::Call& call, const Place& place, Tensors* made) {
  Replay& replay = recorder_.replay();
  std::span<const Replay::Result> results;
  if (!replay.Defer(call, &results)) return false;
  for (const Replay::Result& result : results) {
    made->push_back(recorder_.NewDeferred(place, result, call.location));
  }
  return true;
}

void Engine::Note(uint64_t opened, const Replay::Call& call, std::span<const ir::Value> results, int64_t nodes,
                  std::span<Tensor* const> targets) {
  Replay& replay = recorder_.replay();
  // An automatic cut lies between what was noted and this.
  if (opened > 0) replay.Interrupt();
  size_t i = 0;
  for (const Replay::Result& result : replay.Noted(call, results, nodes)) replay.Number(*targets[i++], result.number);
}

Ref<Tensor> Engine::NewLiteral(const Place& place, HostTensor value, ir::Location location) {
  Replay& replay = recorder_.replay();
  const bool notes = replay.active() && place.frame == nullptr;
  const ir::Attrs attrs = {Ref<const Literal>(MakeRef<Literal>(std::move(value)))};
  const Replay::Call call{
      .kind = Replay::Kind::kLiteral, .op = &ops::kOp_constant, .attrs = attrs, .rule = nullptr, .location = location};
  if (notes) {
    Tensors made;
    replay.Begin();
    if (Defer(call, place, &made)) return made[0];
  }
  ir::Builder b(location);
  const ir::Value literal = ops::Call(b, ops::kOp_constant, {}, attrs);
  Ref<Tensor> tensor = recorder_.NewTensor(place, literal, location);
  Tensor* const target = tensor.get();
  if (notes) Note(0, call, {&literal, 1}, 0, {&target, 1});
  return tensor;
}

absl::Status Engine::Record(const ir::OpDef& op, std::span<Tensor* const> operands, FindOperands find, ir::Attrs attrs,
                            ir::Location location, Tensors* results, const Where& where, ir::RegionSpan regions) {
  Tensors made;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(find());
  lock.Borrow(operands);
  Replay& replay = recorder_.replay();
  Recorder::NextState next(recorder_);
  if (replay.active() && (!regions.empty() || where.frame != nullptr || InBody(operands))) {
    replay.Interrupt();
  }
  if (replay.active()) {
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.PlaceOf(op, operands, location, where));
    replay.Begin();
    const size_t state = op.random ? std::min(StateOperand(op), operands.size()) : operands.size();
    for (const Tensor* operand : operands.first(state)) replay.Add(operand);
    if (op.random) replay.AddLeaf(next.Make());
    for (const Tensor* operand : operands.subspan(state)) replay.Add(operand);
    if (Defer({.kind = Replay::Kind::kOperation, .op = &op, .attrs = attrs, .rule = nullptr, .location = location},
              place, &made)) {
      metrics_.Add(Counter::kOperationsRecorded);
      *results = std::move(made);
      return absl::OkStatus();
    }
  }
  const ir::Attrs said = replay.noting() ? attrs : ir::Attrs();
  Recorder::Draw drawn;
  const absl::Status status =
      RecordLocked(lock, op, operands, std::move(attrs), location, where, regions, &made, &drawn);
  if (replay.noting()) {
    if (!status.ok()) {
      replay.Interrupt();
      return status;
    }
    ir::Values values;
    absl::InlinedVector<Tensor*, 2> targets;
    for (const Ref<Tensor>& tensor : made) {
      values.push_back(tensor->value());
      targets.push_back(tensor.get());
    }
    const uint64_t draws = op.random ? drawn.after.counter_low - drawn.before.counter_low : 0;
    Note(lock.opened(),
         {.kind = Replay::Kind::kOperation,
          .op = &op,
          .attrs = said,
          .rule = nullptr,
          .location = location,
          .draws = draws},
         values, recorder_.counted(), targets);
  }
  WEFT_RETURN_IF_ERROR(status);
  metrics_.Add(Counter::kOperationsRecorded);
  *results = std::move(made);
  return absl::OkStatus();
}

absl::StatusOr<Tensors> Engine::Gradient(Tensor* loss, std::span<Tensor* const> wrt, Tensor* seed,
                                         ir::Location location) {
  Tensors made;
  const FloatScope floats;
  Lock lock(recorder_, Lock::To::kNote);
  Replay& replay = recorder_.replay();
  const ir::Attrs none;
  const Replay::Call call{
      .kind = Replay::Kind::kGradient, .op = nullptr, .attrs = none, .rule = nullptr, .location = location};
  if (replay.active()) {
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.PlaceOfGradient(loss, wrt, seed));
    if (place.frame != nullptr || InBody(wrt)) {
      replay.Interrupt();
    } else {
      replay.Begin();
      replay.Add(loss);
      replay.Add(seed);
      for (const Tensor* x : wrt) replay.Add(x);
      if (Defer(call, place, &made)) {
        metrics_.Add(Counter::kGradients);
        return made;
      }
    }
  }
  const auto record = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Place place,
                          PlaceAfterCut(lock, [&] { return recorder_.PlaceOfGradient(loss, wrt, seed); }));
    ir::Builder b(location);
    WEFT_ASSIGN_OR_RETURN(std::vector<ir::Value> found, recorder_.Gradient(b, place.frame, *loss, wrt, seed, location));
    WEFT_RETURN_IF_ERROR(Finish(lock, place, b, &Recorder::kGradientTag, found));
    metrics_.Add(Counter::kGradients);
    const std::vector<ir::Value> values = replay.noting() ? found : std::vector<ir::Value>();
    recorder_.Publish(place, found, location, &made);
    if (!replay.noting()) return absl::OkStatus();
    std::vector<Tensor*> targets;
    for (const Ref<Tensor>& tensor : made) targets.push_back(tensor.get());
    Note(lock.opened(), call, values, recorder_.counted(), targets);
    return absl::OkStatus();
  };
  const absl::Status status = record();
  if (!status.ok()) {
    replay.Interrupt();
    return status;
  }
  return made;
}

absl::Status Engine::Assign(Tensor* dst, Tensor* src, ir::Location location) {
  Lock lock(recorder_, Lock::To::kNote);
  if (dst == nullptr || &dst->engine() != this) return recorder_.CheckTensor(dst, "assign: target");
  WEFT_RETURN_IF_ERROR(recorder_.CheckTensor(src, "assign: value"));
  if (dst == src) return absl::OkStatus();
  Replay& replay = recorder_.replay();
  const ir::Attrs none;
  const Replay::Call call{
      .kind = Replay::Kind::kAssign, .op = nullptr, .attrs = none, .rule = nullptr, .location = location};
  if (replay.active()) {
    Tensor* const both[] = {dst, src};
    if (InBody(both) || !(dst->type() == src->type()) || !(dst->sharding() == src->sharding())) {
      replay.Interrupt();
    } else {
      replay.Begin();
      replay.Add(src);
      replay.AddNumber(dst->state.requires_grad);
      std::span<const Replay::Result> results;
      if (replay.Defer(call, &results)) {
        recorder_.Assign(*dst, {});
        replay.Number(*dst, results[0].number);
        return absl::OkStatus();
      }
    }
  }
  absl::StatusOr<ir::Value> value = recorder_.Assignable(*dst, *src, location);
  if (!value.ok()) {
    replay.Interrupt();
    return value.status();
  }
  if (!lazy() && dst->frame() == nullptr) {
    WEFT_RETURN_IF_ERROR(evaluator_.Compute(lock, recorder_.StateOf(dst->sharding()), {&*value, 1}, CutReason::kEager));
  }
  recorder_.Assign(*dst, *value);
  if (replay.noting()) Note(lock.opened(), call, {&*value, 1}, 0, {&dst, 1});
  return absl::OkStatus();
}

absl::Status Engine::Update(std::span<Tensor* const> operands, std::span<const double> scalars,
                            std::span<Tensor* const> targets, ir::Location location,
                            const Ref<const UpdateRule>& rule) {
  if (targets.empty()) return absl::OkStatus();
  const FloatScope floats;
  Lock lock(recorder_, Lock::To::kNote);
  Replay& replay = recorder_.replay();
  const ir::Attrs none;
  const Replay::Call call{
      .kind = Replay::Kind::kUpdate, .op = nullptr, .attrs = none, .rule = rule, .location = location};
  Recorder::Scalars leaves;
  if (replay.active()) {
    WEFT_RETURN_IF_ERROR(recorder_.PlaceOfUpdate(operands, targets, location).status());
    leaves = Recorder::ScalarsOf(scalars, operands, targets);
    replay.Begin();
    for (const size_t count : {operands.size(), leaves.f32.size(), leaves.f64.size()}) replay.AddNumber(count);
    for (const Tensor* operand : operands) replay.Add(operand);
    for (const ir::Value& scalar : leaves.f32) replay.AddLeaf(scalar);
    for (const ir::Value& scalar : leaves.f64) replay.AddLeaf(scalar);
    for (const Tensor* target : targets) replay.AddNumber(target->state.requires_grad);
    std::span<const Replay::Result> results;
    if (replay.Defer(call, &results)) {
      for (size_t i = 0; i < targets.size(); ++i) {
        recorder_.Assign(*targets[i], {});
        replay.Number(*targets[i], results[i].number);
      }
      return absl::OkStatus();
    }
  }
  const auto record = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Place place,
                          PlaceAfterCut(lock, [&] { return recorder_.PlaceOfUpdate(operands, targets, location); }));
    if (leaves.f32.size() != scalars.size()) leaves = Recorder::ScalarsOf(scalars, operands, targets);
    ir::Builder b(location);
    WEFT_ASSIGN_OR_RETURN(std::vector<ir::Value> values,
                          recorder_.Update(b, operands, leaves, targets, location, *rule));
    WEFT_RETURN_IF_ERROR(Finish(lock, place, b, &Recorder::kUpdateTag, values));
    for (size_t i = 0; i < targets.size(); ++i) recorder_.Assign(*targets[i], values[i]);
    if (replay.noting()) Note(lock.opened(), call, values, recorder_.counted(), targets);
    return absl::OkStatus();
  };
  const absl::Status status = record();
  if (!status.ok()) replay.Interrupt();
  return status;
}

}  // namespace weft::lazy
