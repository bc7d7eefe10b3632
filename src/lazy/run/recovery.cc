// Recovers from a launch that fails while it runs (a custom operation, a deadline, a request, no memory, a device):
// nothing stays unreadable. Memory that it took over is given back, tensors that were assigned its results get theirs
// from another launch without the rest or show their values from before, and every other result is made again when
// somebody asks for it.
#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/lazy/run/evaluator.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"
#include "src/runtime/clock.h"
#include "src/runtime/taken_over.h"

namespace weft::lazy {
namespace {

bool CallsOut(const ir::Node& node) { return &node.op() == &ops::kOp_custom_call; }
// A launch with a loop or a function of the caller's is not begun again after somebody ended it.
bool MayNotEnd(const ir::Node& node) { return &node.op() == &ops::kOp_while || CallsOut(node); }

// Tells whether a function, or one that it calls, has such a node.
bool HasAny(const ir::Function& function, bool (*such)(const ir::Node&)) {
  return std::ranges::any_of(ir::CalleesFirst(function), [&](const ir::Function* callee) {
    return std::ranges::any_of(callee->nodes(), [&](const ir::Node* node) { return such(*node); });
  });
}

bool HasAny(const MeshState& state, const Launched& launched, bool (*such)(const ir::Node&)) {
  const absl::StatusOr<Ref<const ir::Function>> source = state.programs->Source(launched.program());
  return !source.ok() || HasAny(**source, such);
}

bool MayNotEnd(std::span<const ir::Value> values) {
  return std::ranges::any_of(ir::Reachable(values), [](const ir::Node* node) {
    return MayNotEnd(*node) ||
           std::ranges::any_of(node->regions(), [](const auto& region) { return HasAny(*region, MayNotEnd); });
  });
}

bool Usable(const Data& data) { return !data.gone() && !IsLost(data); }

// Tells whether a pending value can be computed: all that it is made of is there.
bool CanBeMade(const ir::Value& value) {
  const auto known = [](const ir::Node& node) { return AllKnown(node); };
  return std::ranges::all_of(ir::Reachable({&value, 1}, known), [](const ir::Node* node) {
    for (uint32_t i = 0; AllKnown(*node) && i < node->results().size(); ++i) {
      if (!Usable(*DataOf(*node, i))) return false;
    }
    return true;
  });
}

// Calls `use(tensor, data, before, unmade)` for tensors that show what a launch has lost and were assigned that.
template <typename Use>
void ForEachAssigned(MeshState& state, const Launched& launched, Use&& use) {
  for (Tensor& tensor : state.live) {
    Data* const data = tensor.value() ? DataOf(tensor.value()) : nullptr;
    if (data == nullptr || LostBy(*data) != &launched) continue;
    const Tensor::State& now = tensor.state;
    Ref<Data> before = now.assigned ? now.overwritten : nullptr;
    ir::Value unmade = now.assigned ? now.unmade : ir::Value();
    if (before == nullptr && !unmade) {
      before = launched.BeforeOf(now.assignments);
      unmade = launched.UnmadeOf(now.assignments);
    }
    if (before != nullptr || unmade) use(tensor, *data, before, unmade);
  }
}

// Tells whether the step in hand may go back to the last barrier as a whole. Of a loop without barriers that is all of it.
bool GoesBack(const MeshState& state) {
  for (const Tensor& tensor : state.live) {
    const Tensor::State& now = tensor.state;
    if (now.assigned && now.again && tensor.value() && DataOf(tensor.value()) == nullptr) return false;
  }
  return true;
}

// The call behind one that was ended waits so long for launches to end. They look every few milliseconds; one that has begun to
// write to memory that it took over runs to its end.
constexpr int64_t kEndsNs = 5'000'000'000;

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
  ForEachAssigned(state, launched, [&](const Tensor&, Data& data, const Ref<Data>&, const ir::Value&) {
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
  Before back;
  const auto put_back = [&](Tensor& tensor, const Ref<Data>& before, const ir::Value& unmade) {
    if (ir::Value value = ValueBefore(tensor, before, unmade)) back.emplace_back(&tensor, std::move(value));
  };
  // The donated inputs of a function's run show their values again.
  for (Tensor& tensor : state.live) {
    if (!tensor.state.donated) continue;
    put_back(tensor, launched.BeforeOf(tensor.state.assignments), {});
  }
  // Else they are made again when they are needed.
  const bool remade = absl::IsCancelled(outcome) && !GoesBack(state) && !HasAny(state, launched, MayNotEnd);
  if (!again.ok() && !remade) {
    ForEachAssigned(state, launched,
                    [&](Tensor& tensor, const Data&, const Ref<Data>& before, const ir::Value& unmade) {
                      put_back(tensor, before, unmade);
                    });
  }
  ShowAgain(back);
  PassOn(state, launched);
  services_.Log(
      LogLevel::kWarning,
      absl::StrCat("a launch on ", state.mesh.name(), " failed: ", outcome.message(),
                   back.empty() ? "" : absl::StrCat("; ", back.size(), " tensors show what they showed before it")));
  return absl::OkStatus();
}

void Evaluator::PassOn(MeshState& state, Launched& launched) {
  ir::Value unmade;
  const auto older = [&](Ref<Data>& before, uint64_t tensor) {
    unmade = {};
    if (before == nullptr || LostBy(*before) != &launched) return;
    before = launched.BeforeOf(tensor);
    if (before == nullptr) unmade = launched.UnmadeOf(tensor);
  };
  for (const Ref<Launched>& later : state.underway) {
    later->ForEachBefore([&](Ref<Data>& before, uint64_t tensor) {
      older(before, tensor);
      if (unmade) later->ShowedUnmade(tensor, std::move(unmade));
    });
  }
  for (Tensor& tensor : state.live) {
    older(tensor.state.overwritten, tensor.state.assignments);
    if (unmade) tensor.state.unmade = std::move(unmade);
  }
  launched.ForgetUnmade();
}

ir::Value Evaluator::ValueBefore(const Tensor& tensor, const Ref<Data>& before, const ir::Value& unmade) const {
  const bool requires_grad = tensor.state.requires_grad;
  if (before != nullptr) {
    return Usable(*before) ? Recorder::NewLeaf(tensor.type(), before, requires_grad) : ir::Value();
  }
  if (!unmade || !CanBeMade(unmade)) return {};
  ir::Builder b(tensor.state.location);
  ir::Value value = recorder_.Detached(b, unmade, requires_grad);
  return b.ok() ? value : ir::Value();
}

void Evaluator::PutBackEnded() {
  std::vector<Ref<Event>> running;
  {
    const Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kLaunch);
    for (const MeshState& state : recorder_.meshes()) {
      if (!state.mesh.devices()[0]->is_host()) continue;  // nobody ends a plugin's launch
      for (const Ref<Launched>& launched : state.underway) {
        // A function of the caller may wait for a lock that our caller holds.
        if (!launched->done->done() && HasAny(state, *launched, CallsOut)) break;
        running.push_back(launched->done);
      }
    }
  }
  const int64_t until = MonotonicNow() + kEndsNs;
  for (const Ref<Event>& done : running) {
    while (!done->done() && MonotonicNow() < until && services_.AllNoticed()) (void)done->WaitDone(Services::kLookNs);
  }
  Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kLaunch);
  for (MeshState& state : recorder_.meshes()) {
    (void)Settle(lock, state);  // a call that gives up leaves it to the next one
    Cut cut;
    planner_.Live(state.live, recorder_.time(), CutPlanner::For::kBarrier, &cut);
    if (!cut.empty() && GoesBack(state) && planner_.Trace(&cut).ok()) (void)LeaveOutLost(state, cut);
    if (absl::IsCancelled(state.untold)) state.Told();
  }
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
    if (launched == nullptr) continue;
    // A request that a call has told of is over; a deadline would come again.
    const bool over = !launched->gave_up || (absl::IsCancelled(launched->done->status()) && services_.AllNoticed());
    if (!asked && (!over || launched->Tried(data->output))) continue;
    launched->HasTried(data->output);
    const uint32_t requests = services_.cancels();
    const absl::Status again = Restore(lock, state, *data);
    if (again.ok()) continue;
    if (asked || (GaveUp(again) && (!launched->gave_up || services_.cancels() != requests))) return again;
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
      ir::Value before = ValueBefore(tensor);
      if (!before) continue;
      back.emplace_back(&tensor, std::move(before));
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
    ir::Value before = data != nullptr && data->failed ? ValueBefore(tensor) : ir::Value();
    if (!before) continue;
    outcome = data->whole()->ready().status();
    back.emplace_back(&tensor, std::move(before));
  }
  if (back.empty()) return;
  if (state.untold.ok()) state.untold = outcome;
  if (!AskedByName(reason) && reason != CutReason::kEager) AddRestOfStep(state, cut, &back);
  ShowAgain(back);
}

void Evaluator::AddRestOfStep(MeshState& state, const Cut& cut, Before* back) const {
  if (back->empty()) return;
  for (Tensor& tensor : state.live) {
    const Tensor::State& assigned = tensor.state;
    if (!assigned.assigned || assigned.set_aside || assigned.expired || assigned.changed > cut.time) continue;
    if (!tensor.value() || DataOf(tensor.value()) != nullptr) continue;
    if (ir::Value before = ValueBefore(tensor)) back->emplace_back(&tensor, std::move(before));
  }
}

void Evaluator::ShowAgain(const Before& back) {
  for (const auto& [tensor, before] : back) {
    recorder_.Show(*tensor, before);
    tensor->state.overwritten = nullptr;
    tensor->state.unmade = {};
    tensor->state.assigned = tensor->state.set_aside = tensor->state.expired = tensor->state.donated = false;
  }
}

void Evaluator::ShowedOver(Tensor& tensor) {
  Ref<Data> before = std::exchange(tensor.state.overwritten, nullptr);
  ir::Value unmade = std::exchange(tensor.state.unmade, {});
  if (!tensor.state.assigned || !tensor.value()) return;
  const Data* const data = DataOf(tensor.value());
  auto* const launched = data != nullptr ? static_cast<Launched*>(data->launched.get()) : nullptr;
  if (launched != nullptr && (launched->failed || !launched->done->done() || !launched->done->status().ok())) {
    if (before != nullptr) {
      launched->Showed(tensor.state.assignments, std::move(before));
    } else {
      launched->ShowedUnmade(tensor.state.assignments, std::move(unmade));
    }
  }
}

absl::Status Evaluator::Tell(MeshState& state) {
  if (state.untold.ok()) return absl::OkStatus();
  const absl::Status outcome = std::exchange(state.untold, absl::OkStatus());
  return WithText(outcome, absl::StrCat("a launch before failed: ", outcome.message()));
}

}  // namespace weft::lazy
