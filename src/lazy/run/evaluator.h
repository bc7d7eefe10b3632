// Cuts the pending graph and computes it: plan, program, memory, launch. Opens the engine's lock wherever one of them takes
// time, so that others record on, and goes on with what it has planned unless somebody else has computed it meanwhile.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/compiler/compile_queue.h"
#include "src/lazy/cut/cut_planner.h"
#include "src/lazy/record/recorder.h"
#include "src/lazy/run/host_calls.h"
#include "src/lazy/run/inspector.h"
#include "src/lazy/run/launcher.h"

namespace weft::lazy {

// Thread rule: under the lock that is handed in, which may have been open when a call returns. Everything that can fail does
// so before the first kernel and before anything here has changed: a failed call may be repeated.
class Evaluator {
 public:
  using Lock = Recorder::Lock;
  Evaluator(Recorder& recorder, Services& services, Metrics& metrics, const Options& options)
      : recorder_(recorder),
        services_(services),
        metrics_(metrics),
        options_(options),
        planner_(options.held),
        launcher_(metrics, /*takes_over=*/options.first_bad == Bad::kOff),
        host_calls_(recorder, services, metrics, options),
        inspector_(*this, services, options),
        compile_limit_(options.compile_limit) {}

  // Automatic cuts, before an operation is recorded. They fail it only if the wait was cancelled or cannot end.
  absl::Status CutIfDue(Lock& lock, MeshState& state) {
    return state.policy.pending_nodes() == 0 ? absl::OkStatus() : CutIfDueAtAll(lock, state);
  }
  // These values and nothing else.
  absl::Status Compute(Lock& lock, MeshState& state, std::span<const ir::Value> values, CutReason reason);
  // These values, and what they need if something else wants it, so that it is not computed again.
  absl::Status Know(Lock& lock, MeshState& state, std::span<const ir::Value> values, CutReason reason);
  // Everything that is live now and not a scope's temporary; temporaries that are not known expire.
  // `at` is where it was asked for.
  absl::Status Barrier(Lock& lock, MeshState& state, ir::Location at = {});

  // These values, which nothing but the caller knows and which are not known yet. For each, data that its launch may take over,
  // if nobody needs it; null: none.
  absl::Status ComputeOver(Lock& lock, MeshState& state, std::span<const ir::Value> values,
                           std::span<const Ref<Data>> offered);

  // Has the program made that Barrier, or Know of these values, would run now. Returns without waiting for it; null: it is
  // there.
  using Job = compiler::CompileQueue::Job;
  // A program that is there comes out as `known`, and there is no job.
  using ProgramPointer = std::shared_ptr<const compiler::Program>;
  absl::StatusOr<Ref<Job>> CompileBarrier(Lock& lock, MeshState& state, ProgramPointer* known = nullptr);
  absl::StatusOr<Ref<Job>> CompileThese(Lock& lock, MeshState& state, std::span<const ir::Value> values,
                                        ProgramPointer* known = nullptr);
  // The same for ComputeOver; `programs` are for the target that is wanted.
  absl::StatusOr<Ref<Job>> CompileOver(Lock& lock, MeshState& state, compiler::ProgramCache& programs,
                                       std::span<const ir::Value> values, std::span<const Ref<Data>> offered,
                                       ProgramPointer* known);
  // Says every second how far it is. Without the lock.
  absl::Status WaitFor(const Job& job);

  // --- recovery.cc: launches that failed while they ran
  // Looks how launches went. Tensors assigned by failed ones get their values from a launch without the rest or show
  // what they showed before. An error means that the waiting call gave up.
  absl::Status Settle(Lock& lock, MeshState& state);
  // Serves a call that asks by name: a value that a failed launch should have made is made by itself. The error says
  // why it cannot be, and the failure counts as told.
  absl::Status Restore(Lock& lock, MeshState& state, Data& data);
  // A call has told that weft_cancel ended it: waits a moment for the launches that end with it, and shows what was assigned
  // by them, or in steps that need them and are not launched, as it was before. Without the lock.
  void PutBackEnded();
  // How a launch went that failed and of which nobody has been told; from here on somebody has.
  static absl::Status Tell(MeshState& state);

  CutPlanner& planner() { return planner_; }
  Inspector& inspector() { return inspector_; }
  // No programs may be made but those that are or are on their way; else as the options say. `made` so far. Under the lock.
  void SettleCompiles(bool settled, int64_t made) {
    compile_limit_ = settled ? made + compiles_.Others("").value_or(0) : options_.compile_limit;
  }
  // Waits until every program has been compiled that somebody wanted, and for calls of the host's; then there are no more of
  // either. Without the lock.
  void Close() {
    compiles_.Close();
    host_calls_.Close();
  }

 private:
  using Plan = absl::FunctionRef<void(Cut* cut)>;
  class Hand;

  absl::Status CutIfDueAtAll(Lock& lock, MeshState& state);
  // The barrier behind a step that was deferred. False: it must be recorded first, and nothing has changed.
  absl::StatusOr<bool> BarrierAgain(Lock& lock, MeshState& state);
  // A cut that fits and is traced; empty if nothing that is planned is pending.
  absl::Status Make(Lock& lock, MeshState& state, CutReason reason, Plan plan, Cut* cut);
  // Plans and launches until nothing that is planned is pending.
  absl::Status Run(Lock& lock, MeshState& state, CutReason reason, Plan plan);
  // Has the host do these nodes of the cut, which need no other such.
  absl::Status CallOnHost(Lock& lock, MeshState& state, CutReason reason, const Cut& cut,
                          const HostCalls::Nodes& calls);
  // Gives that outcome to values that were asked for by name and need a result that the host failed to make. The cut is
  // empty then.
  absl::Status FailAskedFor(MeshState& state, CutReason reason, const absl::Status& outcome, Cut* cut);
  // Tells whether the waiter gave up, which says nothing against the program.
  static bool GaveUp(const absl::Status& status) {
    return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  }
  // The program is not in memory: counts it, unless the option compile_limit forbids to make it.
  absl::Status MayMake(const Cut& cut, compiler::ProgramCache& programs, const compiler::Wanted& wanted);
  absl::StatusOr<ProgramPointer> ProgramOf(Lock& lock, MeshState& state, const Cut& cut);
  absl::StatusOr<Ref<Job>> Compile(Lock& lock, MeshState& state, compiler::ProgramCache& programs, CutReason reason,
                                   Plan plan, ProgramPointer* known = nullptr);
  // Runs `wait` with the lock open; what the cut is made of stays.
  template <typename F>
  static auto Open(Lock& lock, MeshState& state, const Cut& cut, F&& wait) {
    const OpenCut open(state, cut);
    return lock.Open(std::forward<F>(wait));
  }
  absl::Status WaitForBacklog(Lock& lock, MeshState& state, const Cut& cut);

  // Returns true if the option op_by_op asks to compute this cut one operation at a time.
  bool OneByOne(CutReason reason) const;
  absl::Status ComputeOneByOne(Lock& lock, MeshState& state, const Cut& cut);

  // --- The option first_bad
  // The inputs and outputs of a launch, kept for the inspection of its results; empty if first_bad is off.
  struct Made {
    std::vector<Ref<Data>> arguments;
    std::vector<ir::Value> outputs;
  };
  Made MadeOf(const Cut& cut) const;
  // Looks. A call that asked for values by name is told of a bad one; the next barrier's end tells of others.
  absl::Status LookAt(Lock& lock, MeshState& state, const ProgramPointer& program, CutReason reason, const Made& made);

  absl::Status Undo(Lock& lock, MeshState& state, Launched& launched);
  // Values from before that this launch lost are replaced by those from before it, for later launches and tensors.
  static void PassOn(MeshState& state, Launched& launched);
  // Results of one failed launch, by their numbers, in one launch without the others.
  absl::Status MakeAgain(Lock& lock, MeshState& state, Launched& launched,
                         std::span<const std::pair<Ref<Data>, uint32_t>> lost);
  // Makes arguments again that are lost; of a cut that nobody asked for by name each once. False: there was nothing to do, else the
  // cut is to be planned again or, where some are lost still, what needs them left out.
  absl::StatusOr<bool> RestoreArguments(Lock& lock, MeshState& state, CutReason reason, const Cut& cut);
  // Handles values that cannot be computed any more: tensors that were assigned one show their value from before, cuts
  // leave out the others. False: the cut needs nothing that is lost.
  absl::StatusOr<bool> LeaveOutLost(MeshState& state, const Cut& cut);
  // Handles results that a function on the host failed to make: tensors that were assigned one show their value from
  // before; after a cut that no call asked for by name, so do all that were assigned in the same step.
  void LeaveOutFailed(MeshState& state, CutReason reason, const Cut& cut);
  // The value to show in place of one that is lost: `before`, or `unmade` where that had not been computed. Empty: it is lost, too.
  ir::Value ValueBefore(const Tensor& tensor, const Ref<Data>& before, const ir::Value& unmade) const;
  // The same of what the tensor was assigned over since the last barrier.
  ir::Value ValueBefore(const Tensor& tensor) const {
    return tensor.state.assigned ? ValueBefore(tensor, tensor.state.overwritten, tensor.state.unmade) : ir::Value();
  }
  // Adds all that was assigned up to the cut and is not known, if anything of it is there: a step is done whole or not at all.
  using Before = std::vector<std::pair<Tensor*, ir::Value>>;
  void AddRestOfStep(MeshState& state, const Cut& cut, Before* back) const;
  void ShowAgain(const Before& back);
  // The tensor's value is on its way: should that fail, it shows what it has been assigned over.
  static void Showed(Tensor& tensor) {
    if (tensor.state.overwritten != nullptr || tensor.state.unmade) ShowedOver(tensor);
  }
  static void ShowedOver(Tensor& tensor);

  // --- setbacks.cc
  // RESOURCE_EXHAUSTED names the largest of the outputs and of the live tensors; other outcomes as they are.
  static absl::Status OutOfMemory(const MeshState& state, const Cut& cut, const absl::Status& status);
  // Waits for what runs, whose memory comes back then; false if nothing does.
  absl::StatusOr<bool> WaitForMemory(Lock& lock, MeshState& state, const Cut& cut);
  // Returns the memory that the device has left; -1: unknown. Asks again after all running launches, if that is less
  // than wanted.
  absl::StatusOr<int64_t> RoomFor(double wanted, Lock& lock, MeshState& state, const Cut& cut);
  // Leaves out what nobody asked for until the rest can be stored. An error: what must be had cannot be.
  absl::Status Fit(Lock& lock, MeshState& state, Cut* cut);
  // Checks that the outputs and a program's temporaries can be stored, as far as anybody knows before it is tried.
  absl::Status CheckRoom(Lock& lock, MeshState& state, const Cut& cut, int64_t temporary_bytes);
  // The compiler has refused the cut: looks for the outputs at fault, which later cuts leave out, and says so in the error.
  absl::Status SetAside(Lock& lock, MeshState& state, const Cut& cut, const absl::Status& status);
  absl::StatusOr<bool> Compiles(Lock& lock, MeshState& state, std::span<const ir::Value> values);
  void PostponeCut(MeshState& state, const absl::Status& status);

  Recorder& recorder_;
  Services& services_;
  Metrics& metrics_;
  const Options& options_;
  CutPlanner planner_;
  Launcher launcher_;
  HostCalls host_calls_;
  Inspector inspector_;
  int64_t compile_limit_ = -1;
  ir::Location barrier_at_;                  // of the barrier in hand
  std::vector<ir::Value> shown_;             // by the tensors of a replayed step
  std::vector<std::unique_ptr<Cut>> spare_;  // one for each thread that has a cut in hand at the same time
  compiler::CompileQueue compiles_;
};

}  // namespace weft::lazy
