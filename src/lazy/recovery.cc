// Recovers from a launch that fails while it runs (a custom operation, a deadline, a request, no memory, a device):
// nothing stays unreadable. Memory that it took over is given back, tensors that were assigned its results get theirs
// from another launch without the rest or show their values from before, and every other result is made again when
// somebody asks for it.
#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/lazy/evaluator.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"
#include "src/runtime/taken_over.h"

namespace weft::lazy {
namespace {

// Tells whether these values need a loop or a function of the caller's. A launch with one is not begun again after
// somebody ended it.
bool MayNotEnd(std::span<const ir::Value> values) {
  const auto may_not = [](const ir::Node& node) {
    return &node.op() == &ops::kOp_while || &node.op() == &ops::kOp_custom_call;
  };
  for (const ir::Node* node : ir::Reachable(values)) {
    if (may_not(*node)) return true;
    for (const Ref<const ir::Function>& region : node->regions()) {
      for (const ir::Function* function : ir::CalleesFirst(*region)) {
        if (std::ranges::any_of(function->nodes(), [&](const ir::Node* inner) { return may_not(*inner); })) return true;
      }
    }
  }
  return false;
}

bool Usable(const Ref<Data>& data) { return data != nullptr && !data->gone() && !IsLost(*data); }

// The tensors that show what a launch has lost and were assigned that.
template <typename Use>
void ForEachAssigned(MeshState& state, const Launched& launched, Use&& use) {
  for (Tensor& tensor : state.live) {
    if (!tensor.value()) continue;
    Data* const data = DataOf(tensor.value());
    if (data == nullptr || LostBy(*data) != &launched) continue;
    Ref<Data> before = tensor.state.assigned ? tensor.state.overwritten : nullptr;
    if (before == nullptr) before = launched.BeforeOf(tensor.state.assignments);
    if (before != nullptr) use(tensor, *data, before);
  }
}

}  // namespace

absl::Status Evaluator::Settle(Lock& lock, MeshState& state) {
  state.Land();
  // Making results again comes here, too, and must not begin with later launches.
  if (state.settling) return absl::OkStatus();
  while (true) {
    state.Land();
    if (state.underway.empty() || !state.underway.front()->done->done()) return absl::OkStatus();
    const absl::Cleanup settled = [&] { state.settling = false; };
    state.settling = true;
    const Ref<Launched> launched = std::move(state.underway.front());
    state.underway.pop_front();
    WEFT_RETURN_IF_ERROR(Undo(lock, state, *launched));
  }
}

absl::Status Evaluator::Undo(Lock& lock, MeshState& state, Launched& launched) {
  const absl::Status outcome = launched.done->status();
  launched.failed = true;
  launched.gave_up = GaveUp(outcome);
  if (outcome.GetPayload(kPayloadIntact).has_value()) launched.GiveBack();
  metrics_.Add(Counter::kLaunchesFailed);
  if (state.untold.ok() && !launched.told) state.untold = outcome;
  launched.told = true;
  // They may be launched for what they are worth: a step without its custom operation is a step.
  std::vector<std::pair<Ref<Data>, uint32_t>> assigned;
  ForEachAssigned(state, launched, [&](Tensor&, Data& data, const Ref<Data>&) {
    const auto same = [&](const auto& one) { return one.first.get() == &data; };
    if (std::ranges::none_of(assigned, same)) assigned.emplace_back(Ref<Data>::Share(&data), data.output);
  });
  absl::Status again = launched.gave_up ? outcome : absl::OkStatus();
  if (!assigned.empty() && again.ok()) {
    // Making the values again must not count as telling the caller of the failure.
    const absl::Status untold = state.untold;
    again = MakeAgain(lock, state, launched, assigned);
    if (state.untold.ok()) state.untold = untold;
  }
  // The waiter gave up: nothing is lost by that, but somebody else has to look at the launch.
  if (GaveUp(again) && !launched.gave_up) {
    state.underway.push_front(Ref<Launched>::Share(&launched));
    return again;
  }
  int64_t undone = 0;
  std::vector<std::pair<Tensor*, Ref<Data>>> back;
  // The donated inputs of a function's run show their values again.
  for (Tensor& tensor : state.live) {
    if (!tensor.state.donated) continue;
    if (Ref<Data> before = launched.BeforeOf(tensor.state.assignments); Usable(before))
      back.emplace_back(&tensor, before);
  }
  if (!again.ok()) {
    ForEachAssigned(state, launched, [&](Tensor& tensor, Data&, const Ref<Data>& before) {
      if (Usable(before)) back.emplace_back(&tensor, before);
    });
  }
  for (auto& [tensor, before] : back) {
    recorder_.Show(*tensor, Recorder::NewLeaf(tensor->type(), before, tensor->state.requires_grad));
    tensor->state.overwritten = nullptr;
    tensor->state.assigned = tensor->state.expired = tensor->state.donated = false;
    ++undone;
  }
  // Values from before that this launch lost are replaced by those from before it, for later launches and tensors.
  const auto older = [&](Ref<Data>& before, uint64_t tensor) {
    if (before == nullptr || LostBy(*before) != &launched) return;
    before = launched.BeforeOf(tensor);
  };
  for (const Ref<Launched>& later : state.underway) later->ForEachBefore(older);
  for (Tensor& tensor : state.live) older(tensor.state.overwritten, tensor.state.assignments);
  services_.Log(LogLevel::kWarning,
                absl::StrCat("a launch on ", state.mesh.name(), " failed: ", outcome.message(),
                             undone > 0 ? absl::StrCat("; ", undone, " tensors show what they showed before it") : ""));
  return absl::OkStatus();
}

absl::Status Evaluator::MakeAgain(Lock& lock, MeshState& state, Launched& launched,
                                  std::span<const std::pair<Ref<Data>, uint32_t>> lost) {
  const auto take = [&] {
    bool all = true;
    for (const auto& [data, output] : lost) {
      const Shards* const made = launched.Made(output);
      if (made != nullptr) data->Replace(*made);
      all = all && !IsLost(*data);
    }
    return all;
  };
  if (take()) return absl::OkStatus();
  const absl::Status outcome = launched.done->status();
  for (const Ref<Data>& argument : launched.arguments()) {
    if (argument->gone()) return outcome;  // there is nothing left to make it of
  }
  WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> source, state.programs->Source(launched.program()));
  std::vector<ir::Value> leaves;
  for (size_t i = 0; i < launched.arguments().size(); ++i) {
    leaves.push_back(Recorder::NewLeaf(source->parameters()[i].type(), launched.arguments()[i]));
  }
  const ir::Values results = ir::Inline(*source, leaves);
  std::vector<ir::Value> values;
  ir::Builder b;
  for (const auto& [data, output] : lost) {
    ir::Value value = results[output];
    // Its holders rely on its sharding.
    if (data->split()) {
      const ir::Mesh& axes = state.mesh.axes();
      value = b.Emit(ops::kOp_shard, {value}, {ir::ToString(axes, data->sharding().sharding(), value.dims().size())});
    }
    values.push_back(std::move(value));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  if (launched.gave_up && MayNotEnd(values)) return outcome;
  WEFT_RETURN_IF_ERROR(Compute(lock, state, values, CutReason::kEval));
  for (const ir::Value& value : values) {
    // The call that has it made hears how that goes.
    if (auto* const again = static_cast<Launched*>(DataOf(value)->launched.get())) again->told = true;
  }
  WEFT_RETURN_IF_ERROR(lock.Open([&]() -> absl::Status {
    for (const ir::Value& value : values) {
      for (const Ref<Buffer>& shard : DataOf(value)->shards()) {
        const absl::Status status = services_.WaitFor(shard->ready(), Part::kResults);
        // A wait that was given up is the caller's; that it fails again, perhaps in another way, is what was known.
        if (!status.ok()) return shard->ready().done() ? outcome : status;
      }
    }
    return absl::OkStatus();
  }));
  for (size_t i = 0; i < values.size(); ++i) {
    const std::span<const Ref<Buffer>> made = DataOf(values[i])->shards();
    if (launched.Made(lost[i].second) == nullptr) launched.KeepMade(lost[i].second, Shards(made.begin(), made.end()));
  }
  (void)take();
  return absl::OkStatus();
}

absl::Status Evaluator::Restore(Lock& lock, MeshState& state, Data& data) {
  if (!IsLost(data)) return absl::OkStatus();
  const Ref<Data> kept = Ref<Data>::Share(&data);
  const Ref<Launched> launched = Ref<Launched>::Share(LostBy(data));
  if (launched == nullptr) {
    state.untold = absl::OkStatus();  // who asks is told
    return data.whole()->ready().status();
  }
  const std::pair<Ref<Data>, uint32_t> lost = {kept, data.output};
  const absl::Status again = MakeAgain(lock, state, *launched, {&lost, 1});
  if (!again.ok()) state.untold = absl::OkStatus();  // the asker is told
  return again;
}

absl::StatusOr<bool> Evaluator::RestoreArguments(Lock& lock, MeshState& state, CutReason reason, const Cut& cut) {
  if (std::ranges::none_of(cut.arguments, [](const Ref<Data>& data) { return IsLost(*data); })) return false;
  const bool asked = AskedByName(reason) || reason == CutReason::kEager;
  const std::vector<Ref<Data>> arguments = cut.arguments;
  const OpenCut open(state, cut);
  for (const Ref<Data>& data : arguments) {
    Launched* const launched = LostBy(*data);
    if (launched == nullptr || (!asked && (launched->gave_up || launched->Tried(data->output)))) continue;
    launched->HasTried(data->output);
    const absl::Status again = Restore(lock, state, *data);
    if (again.ok()) continue;
    if (asked || (GaveUp(again) && !launched->gave_up)) return again;
  }
  return true;
}

absl::StatusOr<bool> Evaluator::LeaveOutLost(MeshState& state, const Cut& cut) {
  const compiler::Trace& trace = cut.trace;
  std::vector<const Data*> spoiled(trace.values);  // per value: what is lost of what it is made of
  const auto lost_in = [&](compiler::Trace::Reference reference) -> const Data* {
    if (reference == compiler::Trace::kAbsent) return nullptr;
    const uint32_t index = compiler::Trace::IndexOf(reference);
    if (!compiler::Trace::IsArgument(reference)) return spoiled[index];
    return IsLost(*cut.arguments[index]) ? cut.arguments[index].get() : nullptr;
  };
  size_t operand = 0;
  uint32_t value = 0;
  for (const ir::Node* node : trace.nodes) {
    const Data* lost = nullptr;
    for (const size_t end = operand + node->operands().size(); operand < end; ++operand) {
      if (lost == nullptr) lost = lost_in(trace.operands[operand]);
    }
    for (size_t r = 0; r < node->results().size(); ++r) spoiled[value++] = lost;
  }
  Before back;
  bool any = false;
  for (size_t i = 0; i < cut.outputs.size(); ++i) {
    const Data* const lost = lost_in(trace.outputs[i]);
    if (lost == nullptr) continue;
    any = true;
    bool shown = false;
    for (Tensor& tensor : state.live) {
      if (tensor.state.expired || !(tensor.value() == cut.outputs[i])) continue;
      tensor.state.set_aside = shown = true;
      if (!tensor.state.assigned || !Usable(tensor.state.overwritten)) continue;
      back.emplace_back(&tensor, tensor.state.overwritten);
      if (state.untold.ok()) state.untold = lost->whole()->ready().status();
    }
    // A value that is an output for lack of memory alone cannot be left out by itself.
    if (!shown) return lost->whole()->ready().status();
  }
  AddRestOfStep(state, cut, &back);
  ShowAgain(back);
  return any;
}

void Evaluator::LeaveOutFailed(MeshState& state, CutReason reason, const Cut& cut) {
  // Operands of a function on the host are part of another cut, which looks when the function has been called.
  if (reason == CutReason::kCustom) return;
  Before back;
  absl::Status outcome;
  for (Tensor& tensor : state.live) {
    const Data* const data = tensor.state.assigned && tensor.value() ? DataOf(tensor.value()) : nullptr;
    if (data == nullptr || !data->failed || !Usable(tensor.state.overwritten)) continue;
    outcome = data->whole()->ready().status();
    back.emplace_back(&tensor, tensor.state.overwritten);
  }
  if (back.empty()) return;
  if (state.untold.ok()) state.untold = outcome;
  if (!AskedByName(reason) && reason != CutReason::kEager) AddRestOfStep(state, cut, &back);
  ShowAgain(back);
}

void Evaluator::AddRestOfStep(MeshState& state, const Cut& cut, Before* back) {
  if (back->empty()) return;
  for (Tensor& tensor : state.live) {
    const Tensor::State& assigned = tensor.state;
    if (!assigned.assigned || assigned.set_aside || assigned.expired || assigned.changed > cut.time) continue;
    if (tensor.value() && DataOf(tensor.value()) == nullptr && Usable(assigned.overwritten))
      back->emplace_back(&tensor, assigned.overwritten);
  }
}

void Evaluator::ShowAgain(const Before& back) {
  for (const auto& [tensor, before] : back) {
    recorder_.Show(*tensor, Recorder::NewLeaf(tensor->type(), before, tensor->state.requires_grad));
    tensor->state.overwritten = nullptr;
    tensor->state.assigned = tensor->state.set_aside = false;
  }
}

void Evaluator::Showed(Tensor& tensor) {
  Ref<Data> before = std::exchange(tensor.state.overwritten, nullptr);
  if (before == nullptr || !tensor.state.assigned || !tensor.value()) return;
  const Data* const data = DataOf(tensor.value());
  auto* const launched = data != nullptr ? static_cast<Launched*>(data->launched.get()) : nullptr;
  if (launched != nullptr && (launched->failed || !launched->done->done() || !launched->done->status().ok())) {
    launched->Showed(tensor.state.assignments, std::move(before));
  }
}

absl::Status Evaluator::Tell(MeshState& state) {
  if (state.untold.ok()) return absl::OkStatus();
  const absl::Status outcome = std::exchange(state.untold, absl::OkStatus());
  return WithText(outcome, absl::StrCat("a launch before failed: ", outcome.message()));
}

}  // namespace weft::lazy
