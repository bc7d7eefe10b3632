// See evaluator.h.
#include "src/lazy/run/evaluator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/lazy/service/graph_file.h"
#include "src/ops/registry.h"
#include "src/runtime/clock.h"

namespace weft::lazy {
namespace {

// The nodes of an automatic cut may be pending so many times while another cut is on its way: 320,000 nodes are 80 MB.
constexpr int64_t kPatience = 16;

constexpr int64_t kProgressNs = 1'000'000'000;

Replay::Miss MissFor(CutReason reason) {
  if (reason == CutReason::kHostRead || reason == CutReason::kSize) return Replay::Miss::kRead;
  if (reason == CutReason::kEval) return Replay::Miss::kEvaluated;
  return reason == CutReason::kEager || reason == CutReason::kCustom ? Replay::Miss::kOther : Replay::Miss::kCut;
}

constexpr std::string_view kReasons[] = {"a value was read",
                                         "a barrier",
                                         "a value was asked for",
                                         "automatic, max_pending_nodes are pending",
                                         "automatic, a loop repeats itself",
                                         "automatic, max_pending_bytes are pending",
                                         "the mode computes each operation",
                                         "the size of a result was asked for",
                                         "the host calls a custom operation"};

// The record's name in a graph file for each reason, as PyTorch/XLA writes it.
constexpr std::string_view kGraphNames[] = {"GetTensors",   "ScheduleSyncTensorsGraph",
                                            "GetTensors",   "AutomaticCut",
                                            "AutomaticCut", "AutomaticCut",
                                            "OneOperation", "GetTensors",
                                            "GetTensors"};

}  // namespace

// A cut to plan into, with the room that earlier ones took.
class Evaluator::Hand {
 public:
  explicit Hand(Evaluator& evaluator) : evaluator_(evaluator) {
    if (evaluator_.spare_.empty()) evaluator_.spare_.push_back(std::make_unique<Cut>());
    cut_ = std::move(evaluator_.spare_.back());
    evaluator_.spare_.pop_back();
  }
  ~Hand() {
    cut_->Clear();
    evaluator_.spare_.push_back(std::move(cut_));
  }
  Hand(const Hand&) = delete;
  Hand& operator=(const Hand&) = delete;
  Cut& operator*() const { return *cut_; }

 private:
  Evaluator& evaluator_;
  std::unique_ptr<Cut> cut_;
};

absl::Status Evaluator::CutIfDueAtAll(Lock& lock, MeshState& state) {
  // While another thread's cut is on its way this one records on, up to a limit: that cut may well compute what is pending,
  // and waiting behind its compilation would hold up who only wants to record.
  if (!state.open_cuts.empty() && state.policy.pending_nodes() / kPatience <= options_.max_pending_nodes) {
    return absl::OkStatus();
  }
  const std::optional<CutReason> reason = state.policy.Due();
  if (!reason.has_value()) return absl::OkStatus();
  const uint64_t time = recorder_.time();
  const CutPolicy::Mark mark = state.policy.mark();
  const absl::Status status =
      Run(lock, state, *reason, [&](Cut* cut) { planner_.Live(state.live, time, CutPlanner::For::kAutomatic, cut); });
  if (absl::IsCancelled(status)) return status;
  if (!status.ok()) {
    WEFT_RETURN_IF_ERROR(services_.CheckProcess());
    PostponeCut(state, status);
    return absl::OkStatus();
  }
  state.postponed = false;
  for (LiveList::Iterator next = state.live.Unsettled(); next != state.live.end(); ++next) {
    if ((*next).state.changed <= time) Showed(*next);
  }
  state.policy.Cut(*reason, mark);
  return absl::OkStatus();
}

absl::Status Evaluator::Compute(Lock& lock, MeshState& state, std::span<const ir::Value> values, CutReason reason) {
  return Run(lock, state, reason, [&](Cut* cut) { planner_.These(values, cut); });
}

absl::Status Evaluator::ComputeOver(Lock& lock, MeshState& state, std::span<const ir::Value> values,
                                    std::span<const Ref<Data>> offered) {
  return Run(lock, state, CutReason::kEval, [&](Cut* cut) { planner_.Over(values, offered, cut); });
}

absl::Status Evaluator::Know(Lock& lock, MeshState& state, std::span<const ir::Value> values, CutReason reason) {
  return Run(lock, state, reason, [&](Cut* cut) { planner_.Shared(values, cut); });
}

absl::StatusOr<bool> Evaluator::BarrierAgain(Lock& lock, MeshState& state) {
  Replay& replay = *state.replay;
  const Replay::Plan* plan = replay.Complete();
  if (plan == nullptr) return false;
  while (const Ref<Event> backlog = Launcher::Backlog(state, plan->bytes)) {
    WEFT_RETURN_IF_ERROR(lock.Open([&] { return services_.WaitUntilOver(*backlog, Part::kRoom); }));
    state.Waited(MonotonicNow());
    plan = replay.Complete();  // others may have had the lock
    if (plan == nullptr) return false;
  }
  const Hand hand(*this);
  Cut& cut = *hand;
  shown_.clear();
  const uint64_t opened = lock.opened();
  if (!replay.MakeCut(planner_, *plan, &shown_, &cut)) return false;
  cut.time = recorder_.time();
  const std::shared_ptr<const compiler::Program> program = plan->program;
  // An error would have to name the operations that are to be computed, and there are no nodes of them yet: so the
  // answer is no.
  const bool fits = CheckRoom(lock, state, cut, program->executable->stats().temporary_bytes).ok();
  if (!fits || lock.opened() != opened || !recorder_.CheckOpen().ok()) return false;
  // Temporaries that show what is an output of another tensor's stay, too.
  const auto is_temporary = [](const Tensor& tensor) { return tensor.state.scoped && !tensor.state.assigned; };
  std::vector<ir::Value> stay;
  for (const Tensor& tensor : state.live) {
    if (!replay.IsDeferred(tensor) || !is_temporary(tensor) || replay.OutputOf(*plan, tensor) == plan->outputs)
      continue;
    stay.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {tensor.type()}), 0});
    if (tensor.state.requires_grad) stay.back().node->set_needs_gradient();
  }
  services_.StartsWork();
  const size_t nodes = cut.replayed, outputs = cut.outputs.size();
  const CancelToken token = services_.StartToken(options_.launch_deadline_ms);
  const std::vector<ir::Value> computed = cut.outputs;
  const Made made = MadeOf(cut);
  if (!launcher_.Launch(state, program, CutReason::kBarrier, token, &cut).ok()) return false;
  // From here on nothing fails.
  state.programs->Used(*program);
  metrics_.AddAlone(Counter::kStepsReplayed);
  size_t n = 0, m = 0;
  for (Tensor& tensor : state.live) {
    if (replay.IsDeferred(tensor)) {
      const bool temporary = is_temporary(tensor);
      const size_t output = temporary ? replay.OutputOf(*plan, tensor) : plan->shown[n].output;
      if (output == plan->outputs) {
        tensor.state.expired = true;
        metrics_.AddAlone(Counter::kTemporariesExpired);
      } else {
        Data* data = DataOf(computed[output]);
        const ir::Value& leaf = temporary ? stay[m++] : shown_[n++];
        if (DataOf(leaf) == nullptr) leaf.node->set_payload(Ref<Data>::Share(data));
        data->forgot_gradient = data->forgot_gradient ||
                                (replay.ResultOf(tensor.state.number).needs_gradient && !tensor.state.requires_grad);
        tensor.Show(leaf);
      }
    }
    Showed(tensor);
    tensor.state.assigned = false;
  }
  shown_.clear();
  state.policy.Cut(CutReason::kBarrier, state.policy.mark());
  replay.Start(true);
  services_.LogLazily(LogLevel::kDebug, [&] {
    return absl::StrCat("cut of ", nodes, " nodes with ", outputs, " outputs on ", state.mesh.name(), ": ",
                        kReasons[static_cast<size_t>(CutReason::kBarrier)], ", as before");
  });
  WEFT_RETURN_IF_ERROR(LookAt(lock, state, program, CutReason::kBarrier, made));
  return true;
}

absl::Status Evaluator::Barrier(Lock& lock, MeshState& state, ir::Location at) {
  const PartScope part(metrics_, Part::kLookingUp);
  Replay& replay = *state.replay;
  WEFT_RETURN_IF_ERROR(Settle(lock, state));
  if (replay.deferring()) {
    // Where a launch before has failed, this step is built: of what it lost, all that is assigned here is left out alike.
    if (state.untold.ok()) {
      WEFT_ASSIGN_OR_RETURN(const bool launched, BarrierAgain(lock, state));
      if (launched) return std::exchange(state.found_bad, absl::OkStatus());
    }
    replay.Diverge(replay.Complete() == nullptr ? Replay::Miss::kTensors : Replay::Miss::kLaunch);
  }
  replay.BarrierBegins();
  barrier_at_ = at;
  const uint64_t time = recorder_.time();
  const CutPolicy::Mark mark = state.policy.mark();
  WEFT_RETURN_IF_ERROR(Run(lock, state, CutReason::kBarrier,
                           [&](Cut* cut) { planner_.Live(state.live, time, CutPlanner::For::kBarrier, cut); }));
  bool clean = state.open_cuts.empty();
  for (Tensor& tensor : state.live) {
    if (tensor.state.changed > time) {  // recorded while the lock was open: the next barrier's
      clean = false;
      continue;
    }
    Showed(tensor);
    tensor.state.assigned = false;
    if (tensor.state.expired) continue;
    const ir::Value& value = tensor.value();
    if (Data* data = DataOf(value)) {
      const bool requires_grad = tensor.state.requires_grad;
      if (&value.node->op() != &ops::kOp_parameter || value.node->needs_gradient() != requires_grad) {
        data->forgot_gradient = data->forgot_gradient || (value.node->needs_gradient() && !requires_grad);
        tensor.Show(Recorder::NewLeaf(tensor.type(), Ref<Data>::Share(data), requires_grad));
      }
    } else if (tensor.state.set_aside) {
      clean = false;
    } else {
      tensor.state.expired = true;
      tensor.Show({});
      metrics_.AddAlone(Counter::kTemporariesExpired);
    }
  }
  state.policy.Cut(CutReason::kBarrier, mark);
  replay.Start(clean);
  WEFT_RETURN_IF_ERROR(Tell(state));
  return std::exchange(state.found_bad, absl::OkStatus());
}

absl::Status Evaluator::Make(Lock& lock, MeshState& state, CutReason reason, Plan plan, Cut* cut) {
  while (true) {
    plan(cut);
    if (cut->empty()) return absl::OkStatus();
    const uint64_t opened = lock.opened();
    WEFT_RETURN_IF_ERROR(Fit(lock, state, cut));
    if (lock.opened() != opened && !cut->Pending()) continue;
    WEFT_RETURN_IF_ERROR(planner_.Trace(cut));
    planner_.Offer(cut);
    CutPlanner::Lie(state.mesh, cut);
    return absl::OkStatus();
  }
}

absl::Status Evaluator::Run(Lock& lock, MeshState& state, CutReason reason, Plan plan) {
  const PartScope part(metrics_, Part::kLookingUp);
  if (reason != CutReason::kBarrier) state.replay->Interrupt(MissFor(reason));
  const Hand hand(*this);
  Cut& cut = *hand;
  while (true) {
    WEFT_RETURN_IF_ERROR(Settle(lock, state));
    WEFT_RETURN_IF_ERROR(Make(lock, state, reason, plan, &cut));
    if (cut.empty()) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const bool restored, RestoreArguments(lock, state, reason, cut));
    if (restored) {
      // Plans the graph as it is now, since the lock may have been open.
      WEFT_RETURN_IF_ERROR(Make(lock, state, reason, plan, &cut));
      if (cut.empty()) return absl::OkStatus();
      if (!AskedByName(reason) && reason != CutReason::kEager) {
        WEFT_ASSIGN_OR_RETURN(const bool left_out, LeaveOutLost(state, cut));
        if (left_out) continue;
      }
    }
    if (OneByOne(reason) && cut.trace.nodes.size() > 1) {
      WEFT_RETURN_IF_ERROR(ComputeOneByOne(lock, state, cut));
      continue;
    }
    if (const HostCalls::Nodes calls = host_calls_.Ready(state, cut); !calls.empty()) {
      WEFT_RETURN_IF_ERROR(CallOnHost(lock, state, reason, cut, calls));
      continue;
    }
    if (const absl::Status failed = HostCalls::Failed(cut); !failed.ok()) {
      return FailAskedFor(state, reason, failed, &cut);
    }
    const uint64_t opened = lock.opened();
    // Tells whether the plan is out of date: others had the lock, and computed some of it.
    const auto stale = [&] { return lock.opened() != opened && !cut.Pending(); };
    const absl::StatusOr<ProgramPointer> program = ProgramOf(lock, state, cut);
    if (!program.ok()) {
      if (stale() && !GaveUp(program.status())) continue;
      // A barrier or an automatic cut must go through without what is at fault; a call for one value learns why.
      const bool asked = AskedByName(reason) || reason == CutReason::kEager;
      // Not denied executable memory, which is no program's fault.
      const bool refused = !absl::IsResourceExhausted(program.status()) && !GaveUp(program.status()) &&
                           !absl::IsPermissionDenied(program.status()) &&
                           !program.status().GetPayload(compiler::kPayloadReason).has_value();
      if (asked || !refused || !services_.CheckProcess().ok()) return OutOfMemory(state, cut, program.status());
      return SetAside(lock, state, cut, program.status());
    }
    if (stale()) continue;
    WEFT_RETURN_IF_ERROR(CheckRoom(lock, state, cut, (*program)->executable->stats().temporary_bytes));
    if (stale()) continue;
    WEFT_RETURN_IF_ERROR(WaitForBacklog(lock, state, cut));
    if (stale()) continue;
    WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
    if (reason == CutReason::kBarrier) state.replay->Planned(cut, *program, planner_.OutputBytes(cut));
    services_.StartsWork();
    const size_t nodes = cut.trace.nodes.size(), outputs = cut.outputs.size();
    const Made made = MadeOf(cut);
    if (options_.graphs != nullptr && !Inspector::Looking()) {
      options_.graphs->Write(cut.trace, kGraphNames[static_cast<size_t>(reason)], (*program)->name,
                             reason == CutReason::kBarrier ? barrier_at_ : cut.outputs.back().node->location());
    }
    const absl::Status launched =
        launcher_.Launch(state, *program, reason, services_.StartToken(options_.launch_deadline_ms), &cut);
    if (absl::IsResourceExhausted(launched)) {
      WEFT_ASSIGN_OR_RETURN(const bool waited, WaitForMemory(lock, state, cut));
      if (waited) continue;
    }
    if (!launched.ok()) {
      // An argument may have failed since it was looked at.
      WEFT_RETURN_IF_ERROR(Settle(lock, state));
      if (std::ranges::any_of(cut.arguments, [](const Ref<Data>& data) { return LostBy(*data) != nullptr; })) continue;
      return OutOfMemory(state, cut, launched);
    }
    services_.LogLazily(LogLevel::kDebug, [&] {
      return absl::StrCat("cut of ", nodes, " nodes with ", outputs, " outputs on ", state.mesh.name(), ": ",
                          kReasons[static_cast<size_t>(reason)]);
    });
    return LookAt(lock, state, *program, reason, made);
  }
}

bool Evaluator::OneByOne(CutReason reason) const {
  return !Inspector::Looking() &&
         ((options_.read_op_by_op && AskedByName(reason)) || (options_.sync_op_by_op && reason == CutReason::kBarrier));
}

absl::Status Evaluator::ComputeOneByOne(Lock& lock, MeshState& state, const Cut& cut) {
  const OpenCut open(state, cut);
  std::vector<Ref<const ir::Node>> nodes;
  for (const ir::Node* node : cut.trace.nodes) {
    // A literal is part of the programs of those that read it.
    if (&node->op() != &ops::kOp_constant) nodes.push_back(Ref<const ir::Node>::Share(node));
  }
  for (const Ref<const ir::Node>& node : nodes) {
    if (AllKnown(*node)) continue;  // others may have had the lock
    std::vector<ir::Value> results;
    for (uint32_t i = 0; i < node->results().size(); ++i) results.push_back({node, i});
    WEFT_RETURN_IF_ERROR(Compute(lock, state, results, CutReason::kEager));
  }
  return absl::OkStatus();
}

Evaluator::Made Evaluator::MadeOf(const Cut& cut) const {
  // Mode debug looks at each operation by itself, an inspection at what it computes.
  if (options_.first_bad == Bad::kOff || options_.mode == Mode::kDebug || Inspector::Looking()) return {};
  return {cut.arguments, cut.outputs};
}

absl::Status Evaluator::LookAt(Lock& lock, MeshState& state, const ProgramPointer& program, CutReason reason,
                               const Made& made) {
  if (made.outputs.empty()) return absl::OkStatus();
  std::vector<Ref<Data>> results;
  for (const ir::Value& output : made.outputs) results.push_back(Ref<Data>::Share(DataOf(output)));
  absl::Status found = inspector_.Look(lock, state, *program, made.arguments, results);
  if (AskedByName(reason) || reason == CutReason::kEager) return found;
  if (state.found_bad.ok()) state.found_bad = std::move(found);
  return absl::OkStatus();
}

absl::Status Evaluator::FailAskedFor(MeshState& state, CutReason reason, const absl::Status& outcome, Cut* cut) {
  host_calls_.Fail(state, outcome, cut);
  LeaveOutFailed(state, reason, *cut);
  return absl::OkStatus();
}

absl::Status Evaluator::CallOnHost(Lock& lock, MeshState& state, CutReason reason, const Cut& cut,
                                   const HostCalls::Nodes& calls) {
  const OpenCut open(state, cut);
  std::vector<ir::Value> read;
  for (const Ref<const ir::Node>& node : calls) {
    for (const ir::Value& operand : node->operands()) {
      if (operand) read.push_back(operand);
    }
  }
  WEFT_RETURN_IF_ERROR(Know(lock, state, read, CutReason::kCustom));
  for (const ir::Value& value : read) {
    // A value that cannot be made again fails the call, and nothing else.
    if (Data* const data = DataOf(value); data != nullptr && LostBy(*data) != nullptr)
      (void)Restore(lock, state, *data);
  }
  for (const Ref<const ir::Node>& node : calls) {
    if (AllKnown(*node)) continue;  // others had the lock
    if (!HostCalls::WritesOut(*node)) {
      WEFT_RETURN_IF_ERROR(host_calls_.Call(lock, state, *node));
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const ir::Values results, HostCalls::WrittenOut(*node));
    WEFT_RETURN_IF_ERROR(Know(lock, state, {results.data(), results.size()}, CutReason::kCustom));
    if (!AllKnown(*node)) HostCalls::Show(*node, results);
  }
  LeaveOutFailed(state, reason, cut);
  return absl::OkStatus();
}

absl::Status Evaluator::MayMake(const Cut& cut, compiler::ProgramCache& programs, const compiler::Wanted& wanted) {
  if (compile_limit_ >= 0) {
    // A program that others wait for already counts as made; a request for the same one waits with them.
    const std::optional<int64_t> others = compiles_.Others(wanted.canonical);
    if (others && programs.made() + *others >= compile_limit_) {
      std::string why = programs.Why(wanted);
      if (why.empty()) why = "nothing like it is known";
      return WithDetail(
          UserErrorOf(absl::StatusCode::kFailedPrecondition, "a program of ", wanted.nodes,
                      " nodes would have to be made, and there are as many as the option compile_limit or "
                      "weft_compiles_settled allows: ",
                      why),
          compiler::kPayloadReason, why);
    }
  }
  programs.CountMissing(wanted);
  const auto taken =
      std::ranges::count_if(cut.trace.arguments, [](const auto& argument) { return argument.donated_to >= 0; });
  metrics_.Add(Sample::kMayTakeOver, taken, MonotonicNow());
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::ProgramPointer> Evaluator::ProgramOf(Lock& lock, MeshState& state, const Cut& cut) {
  compiler::Wanted wanted;
  if (ProgramPointer program = state.programs->Find(cut.trace, &wanted)) return program;
  // The queue's thread, and perhaps its lock, stayed in the parent of a fork.
  WEFT_RETURN_IF_ERROR(services_.CheckProcess());
  services_.StartsWork();
  WEFT_RETURN_IF_ERROR(MayMake(cut, *state.programs, wanted));
  Ref<Job> job;
  WEFT_RETURN_IF_ERROR(Open(lock, state, cut, [&] {
    job = compiles_.Enter(*state.programs, std::move(wanted));
    return WaitFor(*job);
  }));
  return job->result();
}

absl::Status Evaluator::WaitFor(const Job& job) {
  constexpr int64_t kMillisecond = 1'000'000, kMost = int64_t{1} << 40;
  const int64_t start = MonotonicNow(), limit = std::min(options_.compile_deadline_ms, kMost) * kMillisecond;
  while (true) {
    const int64_t left = limit == 0 ? kProgressNs : start + limit - MonotonicNow();
    const absl::Status status = services_.WaitFor(*job.done(), Part::kCompiler,
                                                  std::clamp<int64_t>(left, 0, kProgressNs), &compiles_.starving());
    if (!absl::IsDeadlineExceeded(status)) return status;
    if (left < kProgressNs) {
      return UserErrorOf(absl::StatusCode::kDeadlineExceeded, "a program of ", job.nodes(),
                         " nodes is not there after ", options_.compile_deadline_ms,
                         " ms, the option compile_deadline_ms: it ", job.Progress(),
                         ". Whoever asks again waits on for the same program");
    }
    services_.LogLazily(LogLevel::kInfo, [&] {
      return absl::StrCat("after ", (MonotonicNow() - start) / 1'000'000'000, " s a program of ", job.nodes(),
                          " nodes ", job.Progress());
    });
    services_.FlushLog();
  }
}

absl::StatusOr<Ref<Evaluator::Job>> Evaluator::Compile(Lock& lock, MeshState& state, compiler::ProgramCache& programs,
                                                       CutReason reason, Plan plan, ProgramPointer* known) {
  const PartScope part(metrics_, Part::kLookingUp);
  const Hand hand(*this);
  Cut& cut = *hand;
  WEFT_RETURN_IF_ERROR(Make(lock, state, reason, plan, &cut));
  compiler::Wanted wanted;
  if (cut.empty()) return nullptr;
  if (ProgramPointer found = programs.Find(cut.trace, &wanted)) {
    if (known != nullptr) *known = std::move(found);
    return nullptr;
  }
  WEFT_RETURN_IF_ERROR(services_.CheckProcess());
  services_.StartsWork();
  WEFT_RETURN_IF_ERROR(MayMake(cut, programs, wanted));
  Ref<Job> job;
  Open(lock, state, cut, [&] { job = compiles_.Enter(programs, std::move(wanted)); });
  return job;
}

absl::StatusOr<Ref<Evaluator::Job>> Evaluator::CompileBarrier(Lock& lock, MeshState& state, ProgramPointer* known) {
  const uint64_t time = recorder_.time();
  return Compile(
      lock, state, *state.programs, CutReason::kBarrier,
      [&](Cut* cut) { planner_.Live(state.live, time, CutPlanner::For::kBarrier, cut); }, known);
}

absl::StatusOr<Ref<Evaluator::Job>> Evaluator::CompileThese(Lock& lock, MeshState& state,
                                                            std::span<const ir::Value> values, ProgramPointer* known) {
  return Compile(
      lock, state, *state.programs, CutReason::kEval, [&](Cut* cut) { planner_.Shared(values, cut); }, known);
}

absl::StatusOr<Ref<Evaluator::Job>> Evaluator::CompileOver(Lock& lock, MeshState& state,
                                                           compiler::ProgramCache& programs,
                                                           std::span<const ir::Value> values,
                                                           std::span<const Ref<Data>> offered, ProgramPointer* known) {
  return Compile(
      lock, state, programs, CutReason::kEval, [&](Cut* cut) { planner_.Over(values, offered, cut); }, known);
}

absl::Status Evaluator::WaitForBacklog(Lock& lock, MeshState& state, const Cut& cut) {
  while (const Ref<Event> backlog = Launcher::Backlog(state, planner_.OutputBytes(cut))) {
    WEFT_RETURN_IF_ERROR(Open(lock, state, cut, [&] { return services_.WaitUntilOver(*backlog, Part::kRoom); }));
    state.Waited(MonotonicNow());
  }
  return absl::OkStatus();
}

}  // namespace weft::lazy
