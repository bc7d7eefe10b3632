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
  std::span<const Replay::Result> results;
  if (!place.state->replay->Defer(call, &results)) return false;
  for (const Replay::Result& result : results) {
    const bool absent = result.number == Replay::kAbsent;
    made->push_back(absent ? nullptr : recorder_.NewDeferred(place, result, call.location));
  }
  return true;
}

void Engine::Note(Replay& replay, uint64_t opened, const Replay::Call& call, std::span<const ir::Value> results,
                  int64_t nodes, std::span<Tensor* const> targets) {
  // An automatic cut lies between what was noted and this.
  if (opened > 0) replay.Interrupt(Replay::Miss::kCut);
  size_t i = 0;
  for (const Replay::Result& result : replay.Noted(call, results, nodes)) {
    Tensor* const target = targets[i++];
    if (target != nullptr) replay.Number(*target, result.number);
  }
}

Ref<Tensor> Engine::NewLiteral(const Place& place, HostTensor value, ir::Location location) {
  Replay& replay = *place.state->replay;
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
  if (notes) Note(replay, 0, call, {&literal, 1}, 0, {&target, 1});
  return tensor;
}

absl::Status Engine::RecordOrDefer(Lock& lock, const ir::OpDef& op, std::span<Tensor* const> operands,
                                   ir::Attrs&& attrs, ir::Location location, const Where& where, ir::RegionSpan regions,
                                   Tensors* made, Recorder::Draw* drawn) {
  Recorder::NextState next(recorder_);
  const uint64_t opened = lock.opened();  // a list of calls opens it in between
  Replay* notes = nullptr;                // notes the call
  if (recorder_.Replays()) {
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.PlaceOf(op, operands, location, where));
    if (place.frame != nullptr) recorder_.MustShowOutside(operands);
    Replay& replay = *place.state->replay;
    if (place.frame == nullptr && replay.active()) {
      replay.Begin();
      const size_t state = op.random ? std::min(StateOperand(op), operands.size()) : operands.size();
      uint64_t streams = 0;
      // Where functions are carried, what is absent is a stream.
      const auto add = [&](const Tensor* operand) {
        operand == nullptr && !regions.empty() ? replay.AddLeaf(next.MakeStream(streams++)) : replay.Add(operand);
      };
      for (const Tensor* operand : operands.first(state)) add(operand);
      if (op.random) replay.AddLeaf(next.Make());
      for (const Tensor* operand : operands.subspan(state)) add(operand);
      const GeneratorState before = recorder_.generator;
      if (Defer({.kind = Replay::Kind::kOperation,
                 .op = &op,
                 .attrs = attrs,
                 .rule = nullptr,
                 .location = location,
                 .regions = regions},
                place, made)) {
        *drawn = {nullptr, before, recorder_.generator};
        return absl::OkStatus();
      }
      if (replay.noting()) notes = &replay;
    }
  }
  const ir::Attrs said = notes != nullptr ? attrs : ir::Attrs();
  const absl::Status status = RecordLocked(lock, op, operands, std::move(attrs), location, where, regions, made, drawn);
  if (notes == nullptr) return status;
  if (!status.ok()) {
    notes->Interrupt(Replay::Miss::kFailed);
    return status;
  }
  ir::Values values;
  absl::InlinedVector<Tensor*, 2> targets;
  for (const Ref<Tensor>& tensor : *made) {
    values.push_back(tensor->value());
    targets.push_back(tensor.get());
  }
  const bool draws = op.random || !regions.empty();
  Note(*notes, lock.opened() - opened,
       {.kind = Replay::Kind::kOperation,
        .op = &op,
        .attrs = said,
        .rule = nullptr,
        .location = location,
        .draws = draws ? drawn->after.counter_low - drawn->before.counter_low : 0,
        .regions = regions},
       values, recorder_.counted(), targets);
  return absl::OkStatus();
}

absl::Status Engine::Record(const ir::OpDef& op, std::span<Tensor* const> operands, FindOperands find, ir::Attrs attrs,
                            ir::Location location, Tensors* results, const Where& where, ir::RegionSpan regions) {
  Tensors made;
  Recorder::Draw drawn;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(find());
  lock.Borrow(operands);
  WEFT_RETURN_IF_ERROR(RecordOrDefer(lock, op, operands, std::move(attrs), location, where, regions, &made, &drawn));
  recorder_.CountOperation(op);
  *results = std::move(made);
  return absl::OkStatus();
}

absl::StatusOr<Tensors> Engine::Gradient(Tensor* loss, std::span<Tensor* const> wrt, Tensor* seed,
                                         ir::Location location) {
  Tensors made;
  const FloatScope floats;
  Lock lock(recorder_, Lock::To::kNote);
  const ir::Attrs none;
  const Replay::Call call{
      .kind = Replay::Kind::kGradient, .op = nullptr, .attrs = none, .rule = nullptr, .location = location};
  Replay* notes = nullptr;  // notes the call
  if (recorder_.Replays()) {
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.PlaceOfGradient(loss, wrt, seed));
    if (place.frame != nullptr) {
      Tensor* const both[] = {loss, seed};
      recorder_.MustShowOutside(both);
      recorder_.MustShowOutside(wrt);
    } else if (place.state->replay->active()) {
      notes = place.state->replay.get();
      notes->Begin();
      notes->Add(loss);
      notes->Add(seed);
      for (const Tensor* x : wrt) notes->Add(x);
      if (Defer(call, place, &made)) {
        metrics_->AddAlone(Counter::kGradients);
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
    metrics_->AddAlone(Counter::kGradients);
    const bool noting = notes != nullptr && notes->noting();
    const std::vector<ir::Value> values = noting ? found : std::vector<ir::Value>();
    recorder_.Publish(place, found, location, &made);
    if (!noting) return absl::OkStatus();
    std::vector<Tensor*> targets;
    for (const Ref<Tensor>& tensor : made) targets.push_back(tensor.get());
    Note(*notes, lock.opened(), call, values, recorder_.counted(), targets);
    return absl::OkStatus();
  };
  const absl::Status status = record();
  if (!status.ok()) {
    if (notes != nullptr) notes->Interrupt(Replay::Miss::kFailed);
    return status;
  }
  return made;
}

absl::StatusOr<Tensors> Engine::OpGradient(const Recorder::OpGradientCall& call, ir::Attrs attrs,
                                           ir::Location location) {
  Tensors made;
  const FloatScope floats;
  Lock lock(recorder_, Lock::To::kNote);
  const ir::Attrs said = recorder_.Replays() ? attrs : ir::Attrs();
  const Replay::Call noted{
      .kind = Replay::Kind::kOpGradient, .op = &call.op, .attrs = said, .rule = nullptr, .location = location};
  Replay* notes = nullptr;  // notes the call
  if (recorder_.Replays()) {
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.PlaceOfOpGradient(call));
    const std::span<Tensor* const> lists[] = {call.inputs, call.results, call.cotangents};
    if (place.frame == nullptr && place.state->replay->active()) {
      notes = place.state->replay.get();
      notes->Begin();
      for (const auto list : lists) notes->AddNumber(list.size());
    }
    for (const auto list : lists) {
      if (place.frame != nullptr) recorder_.MustShowOutside(list);
      for (size_t i = 0; notes != nullptr && i < list.size(); ++i) notes->Add(list[i]);
    }
    for (size_t i = 0; notes != nullptr && i < call.wanted.size(); ++i) notes->AddNumber(call.wanted[i] ? 1 : 0);
    if (notes != nullptr && Defer(noted, place, &made)) {
      metrics_->AddAlone(Counter::kGradients);
      return made;
    }
  }
  const auto record = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Place place, PlaceAfterCut(lock, [&] { return recorder_.PlaceOfOpGradient(call); }));
    ir::Builder b(location);
    absl::StatusOr<std::vector<ir::Value>> found = recorder_.OpGradient(b, place.frame, call, std::move(attrs));
    if (!found.ok()) return WithPosition(found.status(), location);
    std::vector<ir::Value> flows;
    for (const ir::Value& value : *found) {
      if (value) flows.push_back(value);
    }
    if (!flows.empty()) WEFT_RETURN_IF_ERROR(Finish(lock, place, b, &Recorder::kGradientTag, flows));
    metrics_->AddAlone(Counter::kGradients);
    std::vector<Tensor*> targets;
    for (const ir::Value& value : *found) {
      made.push_back(value ? recorder_.NewTensor(place, value, location) : nullptr);
      targets.push_back(made.back().get());
    }
    if (notes != nullptr && notes->noting()) {
      Note(*notes, lock.opened(), noted, *found, flows.empty() ? 0 : recorder_.counted(), targets);
    }
    return absl::OkStatus();
  };
  const absl::Status status = record();
  if (!status.ok()) {
    if (notes != nullptr) notes->Interrupt(Replay::Miss::kFailed);
    return status;
  }
  return made;
}

absl::StatusOr<Ref<Tensor>> Engine::Alias(Tensor* tensor) {
  Ref<Tensor> alias;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(recorder_.CheckTensor(tensor, "the tensor"));
  const Place place = {&recorder_.StateOf(tensor->sharding()), tensor->frame()};
  Replay& replay = *place.state->replay;
  const ir::Attrs none;
  const Replay::Call call{
      .kind = Replay::Kind::kAlias, .op = nullptr, .attrs = none, .rule = nullptr, .location = tensor->state.location};
  // A value that is known is a leaf of the step, whichever tensor shows it.
  const bool known = tensor->value() && DataOf(tensor->value()) != nullptr;
  const bool notes = replay.active() && place.frame == nullptr && !known;
  if (notes) {
    Tensors made;
    replay.Begin();
    replay.Add(tensor);
    if (Defer(call, place, &made)) alias = std::move(made[0]);
  }
  if (!alias) {
    alias = recorder_.NewTensor(place, tensor->value(), tensor->state.location);
    Tensor* const target = alias.get();
    if (notes && replay.noting()) Note(replay, 0, call, {&tensor->value(), 1}, 0, {&target, 1});
  }
  alias->state.requires_grad = tensor->state.requires_grad;
  alias->state.set_aside = tensor->state.set_aside;
  return alias;
}

absl::Status Engine::Assign(Tensor* dst, Tensor* src, Past past, ir::Location location) {
  Lock lock(recorder_, Lock::To::kNote);
  const bool cuts = past == Past::kCut;
  if (dst == nullptr || &dst->engine() != this) {
    return recorder_.CheckTensor(dst, cuts ? "assign: target" : "copy_from: target");
  }
  WEFT_RETURN_IF_ERROR(recorder_.CheckTensor(src, cuts ? "assign: value" : "copy_from: value"));
  if (dst == src) return absl::OkStatus();
  Replay& replay = *recorder_.StateOf(dst->sharding()).replay;
  const ir::Attrs none;
  const Replay::Call call{
      .kind = Replay::Kind::kAssign, .op = nullptr, .attrs = none, .rule = nullptr, .location = location};
  bool notes = false;
  if (replay.active()) {
    Tensor* const both[] = {dst, src};
    if (InBody(both)) {
      recorder_.MustShowOutside(both);
    } else if (!(dst->type() == src->type()) || !(dst->sharding() == src->sharding())) {
      replay.Interrupt(Replay::Miss::kFailed);
    } else {
      notes = true;
      replay.Begin();
      replay.Add(src);
      replay.AddNumber(dst->state.requires_grad);
      replay.AddNumber(static_cast<size_t>(past));
      std::span<const Replay::Result> results;
      if (replay.Defer(call, &results)) {
        recorder_.Assign(*dst, {});
        replay.Number(*dst, results[0].number);
        return absl::OkStatus();
      }
    }
  }
  absl::StatusOr<ir::Value> value = recorder_.Assignable(*dst, *src, past, location);
  if (!value.ok()) {
    if (notes) replay.Interrupt(Replay::Miss::kFailed);
    return value.status();
  }
  if (!lazy() && dst->frame() == nullptr) {
    WEFT_RETURN_IF_ERROR(evaluator_.Compute(lock, recorder_.StateOf(dst->sharding()), {&*value, 1}, CutReason::kEager));
  }
  recorder_.Assign(*dst, *value);
  if (notes && replay.noting()) Note(replay, lock.opened(), call, {&*value, 1}, 0, {&dst, 1});
  return absl::OkStatus();
}

absl::Status Engine::Update(std::span<Tensor* const> operands, std::span<const double> scalars,
                            std::span<Tensor* const> targets, ir::Location location,
                            const Ref<const UpdateRule>& rule) {
  if (targets.empty()) return absl::OkStatus();
  const FloatScope floats;
  Lock lock(recorder_, Lock::To::kNote);
  const ir::Attrs none;
  const Replay::Call call{
      .kind = Replay::Kind::kUpdate, .op = nullptr, .attrs = none, .rule = rule, .location = location};
  Recorder::Scalars leaves;
  Replay* notes = nullptr;  // notes the call
  if (recorder_.Replays()) {
    WEFT_ASSIGN_OR_RETURN(const Place where, recorder_.PlaceOfUpdate(operands, targets, location));
    if (where.state->replay->active()) notes = where.state->replay.get();
  }
  if (notes != nullptr) {
    Replay& replay = *notes;
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
    if (notes != nullptr && notes->noting()) Note(*notes, lock.opened(), call, values, recorder_.counted(), targets);
    return absl::OkStatus();
  };
  const absl::Status status = record();
  if (!status.ok() && notes != nullptr) notes->Interrupt(Replay::Miss::kFailed);
  return status;
}

}  // namespace weft::lazy
