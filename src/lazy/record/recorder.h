// Recording: operations, gradients, assignments and updates become nodes, and tensors show them. Owns the engine's lock, the
// live tensors and the random state. Nothing here computes or waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <list>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/ir/builder.h"
#include "src/lazy/record/frame.h"
#include "src/lazy/record/op_counts.h"
#include "src/lazy/record/replay.h"
#include "src/lazy/service/services.h"
#include "src/lazy/value/generator.h"
#include "src/runtime/mutex.h"

namespace weft::lazy {

// Thread rule: everything under its Lock, but for Release; the order of the lock is the order of the program.
class Recorder {
 public:
  // `owner` is what it belongs to.
  Recorder(Owner& owner, Services& services, const std::shared_ptr<Metrics>& metrics)
      : owner_(owner), services_(services), metrics_(*metrics), shared_metrics_(metrics) {}

  // Holds the lock, buries the dead first, delivers messages last. The caller keeps the engine alive.
  class Lock {
   public:
    // The lock's owner says what it is about to do, for steps that are replayed.
    enum class To : uint8_t {
      kChange,  // anything: what was deferred is recorded
      kNote,    // what the replay notes, or what neither shows nor changes a pending value
    };
    explicit Lock(Recorder& recorder, To to = To::kChange, Replay::Miss why = Replay::Miss::kOther);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    // Tensors that the caller has found under this lock and holds no references to: they stay while it is open.
    void Borrow(std::span<Tensor* const> tensors) { borrowed_ = tensors; }
    // Runs what waits while others go on; afterwards everything may have changed but what the caller holds or borrowed.
    template <typename F>
    auto Open(F&& wait) {
      recorder_.KeepBorrowed(borrowed_);
      ++recorder_.waiting_;
      Leave();
      const Reenter again{*this};
      return wait();
    }
    // How often it was opened.
    uint64_t opened() const { return opened_; }

   private:
    struct Reenter {
      Lock& lock;
      ~Reenter() {
        lock.Enter(), ++lock.opened_, --lock.recorder_.waiting_, lock.recorder_.LetGoOfBorrowed(lock.borrowed_);
      }
    };
    void Enter() ABSL_NO_THREAD_SAFETY_ANALYSIS;  // what it takes, Leave gives back
    void Leave() ABSL_NO_THREAD_SAFETY_ANALYSIS;
    Recorder& recorder_;
    std::span<Tensor* const> borrowed_;
    uint64_t opened_ = 0;
  };

  // A mesh stays as long as the engine: places of values point to it. `options` become the policy of its automatic cuts, and say
  // whether its steps are replayed.
  MeshState& AddMesh(std::vector<Device*> devices, ir::Mesh axes, compiler::ProgramCache* programs,
                     const Options& options);
  std::list<MeshState>& meshes() { return meshes_; }
  // Null: there is none like it.
  MeshState* FindMesh(std::span<Device* const> devices, const ir::Mesh& axes);
  // Where what names no place is recorded; null: the first device.
  void SetDefault(MeshState* state) { Held(), default_ = state; }
  MeshState* usual() const { return Held(), default_; }
  MeshState& StateOf(const Placement& sharding) {
    auto state = meshes_.begin();
    while (&state->mesh != &sharding.mesh()) ++state;
    return *state;
  }
  // The state of this device alone.
  MeshState& StateOf(const Device& device) {
    auto state = meshes_.begin();
    while (!state->mesh.alone() || state->mesh.devices()[0] != &device) ++state;
    return *state;
  }
  // FAILED_PRECONDITION once closed; so do the others.
  absl::Status CheckOpen() const;
  absl::StatusOr<MeshState*> CheckPlace(const Placement& sharding);
  // Open, the mesh of this device alone; in a body, that of the body.
  absl::StatusOr<Place> CheckWhere(const Where& where);
  // Ours, and not expired.
  absl::Status CheckTensor(const Tensor* tensor, std::string_view what) const;
  // Besides, that it has a value: one in a body has none.
  absl::Status CheckKnowable(const Tensor* tensor, std::string_view what) const;
  // Refuses what no body can do: reads, waits, barriers.
  static absl::Status CheckProgram(const Frame* frame, std::string_view what);
  void Close() { Held(), closed_ = true; }
  bool closed() const { return Held(), closed_; }

  GeneratorState generator;
  // Returns true if the replay of any mesh notes or compares calls.
  bool Replays() const {
    return std::ranges::any_of(meshes_, [](const MeshState& state) { return state.replay->active(); });
  }
  // Interrupts the replays of all meshes; call it before anything that may change pending values of any mesh.
  void Interrupt(Replay::Miss why) {
    for (MeshState& state : meshes_) state.replay->Interrupt(why);
  }
  // Says why the latest step that began as a noted one was built after all.
  std::string LastMiss() const { return last_missed_ == nullptr ? "" : last_missed_->LastMiss(); }
  // Goes up whenever a tensor shows another value.
  uint64_t time() const { return Held(), time_; }

  // --- Tensors -------------------------------------------------------------------------------------------------------
  static ir::Value NewLeaf(const ir::Type& type, Ref<Data> data, bool needs_gradient = false);
  Ref<Tensor> NewTensor(const Place& place, ir::Value value, ir::Location location);
  // One that shows a number, of the program on the mesh's device.
  Ref<Tensor> NewDeferred(const Place& place, const Replay::Result& result, ir::Location location);
  void Show(Tensor& tensor, ir::Value value) {
    Held();
    if (tensor.state.changed != 0 && tensor.frame() == nullptr) StateOf(tensor.sharding()).live.Unsettle();
    tensor.Show(std::move(value));
    tensor.state.changed = ++time_;
  }
  // Call before inspecting a tensor that may be pending: records the deferred calls.
  void MustShow(const Tensor& tensor, Replay::Miss why) {
    if (!tensor.value() || DataOf(tensor.value()) == nullptr) StateOf(tensor.sharding()).replay->Interrupt(why);
  }
  // Call before using tensors in a body: records the deferred calls if some tensor from outside is a result of one.
  void MustShowOutside(std::span<Tensor* const> tensors) {
    for (const Tensor* tensor : tensors) {
      if (tensor == nullptr || tensor->frame() != nullptr || tensor->value()) continue;
      Replay& replay = *StateOf(tensor->sharding()).replay;
      if (replay.IsDeferred(*tensor)) replay.Interrupt(Replay::Miss::kBody);
    }
  }
  // The last reference is gone. Without the lock, on any thread.
  void Release(const Tensor* tensor);

  // --- Functions -----------------------------------------------------------------------------------------------------
  absl::StatusOr<Ref<Frame>> Begin(const Where& where, std::string name, std::span<const ir::Type> inputs,
                                   ir::Location location, Tensors* parameters);
  struct Finished {
    Ref<const ir::Function> function;  // parameters: the inputs, then one per capture
    Tensors captures;                  // of the frame around the body: what a call goes with
    bool draws = false;                // the last parameter is a stream, behind the captures
  };
  absl::StatusOr<Finished> Finish(Frame& frame, std::span<Tensor* const> outputs);
  void Abandon(Frame& frame);

  // --- Nodes ---------------------------------------------------------------------------------------------------------
  // Where the operation is recorded: where its operands live, which must be one place, in the deepest of their frames and
  // `where`'s, around which the others must be.
  absl::StatusOr<Place> PlaceOf(const ir::OpDef& op, std::span<Tensor* const> operands, ir::Location location,
                                const Where& where);
  // The numbers that an operation has drawn from the random state, or in a body from the stream of that body.
  struct Draw {
    Frame* frame = nullptr;
    GeneratorState before, after;
  };
  // The results, which no tensor shows yet; the builder has the error. Draws from the random state if need be: take it back
  // with Undraw if the call fails after all. Where functions are carried, an operand that is null is one's stream.
  ir::Values Operation(ir::Builder& b, Frame* frame, const ir::OpDef& op, std::span<Tensor* const> operands,
                       ir::Attrs&& attrs, ir::RegionSpan regions, Draw* draw);
  // The same of values that the frame knows, where numbers may have to be drawn.
  ir::Values Drawing(ir::Builder& b, Frame* frame, const ir::OpDef& op, ir::Values values, ir::Attrs&& attrs,
                     ir::RegionSpan regions, Draw* draw);
  absl::StatusOr<Place> PlaceOfGradient(const Tensor* loss, std::span<Tensor* const> wrt, const Tensor* seed);
  absl::StatusOr<std::vector<ir::Value>> Gradient(ir::Builder& b, Frame* frame, Tensor& loss,
                                                  std::span<Tensor* const> wrt, Tensor* seed, ir::Location location);
  // One operation's, of tensors that need require nothing: see autodiff::OpGradient. Null where none flows.
  struct OpGradientCall {
    const ir::OpDef& op;
    std::span<Tensor* const> inputs, results, cotangents;  // null where something is absent
    std::span<const bool> wanted;                          // one for each input
  };
  absl::StatusOr<Place> PlaceOfOpGradient(const OpGradientCall& call);
  absl::StatusOr<std::vector<ir::Value>> OpGradient(ir::Builder& b, Frame* frame, const OpGradientCall& call,
                                                    ir::Attrs&& attrs);
  // The state that a random operation of the program would be recorded with now; while this lives, it will.
  class NextState {
   public:
    explicit NextState(Recorder& recorder) : recorder_(recorder) {}
    ~NextState() {
      if (!recorder_.next_states_.empty()) recorder_.next_states_.clear();
    }
    NextState(const NextState&) = delete;
    NextState& operator=(const NextState&) = delete;
    const ir::Value& Make();
    // The n-th stream that a function's call would draw.
    const ir::Value& MakeStream(uint64_t n);

   private:
    Recorder& recorder_;
  };
  // Draws for a deferred operation.
  void Advance(uint64_t blocks) { generator.Advance(blocks); }
  // Takes a draw back, so that a call that failed draws the same numbers when it is repeated, unless somebody else has
  // drawn since.
  void Undraw(const Draw& draw);
  // These tags replace an operation in the policy's signatures where many are recorded at once.
  static constexpr char kGradientTag = 0, kUpdateTag = 0;
  // Counts recorded nodes, for the policy too where they stay pending; `what` is an OpDef or a tag.
  void Count(const Place& place, const ir::Builder& b, const void* what, std::span<const ir::Value> results,
             bool pending);
  // The nodes that were counted last.
  int64_t counted() const { return Held(), counted_; }
  // Counts deferred operations as recorded at once. If they are recorded after all, the policy hears of it then.
  void CountDeferred(int64_t nodes) { metrics_.AddAlone(Counter::kNodesRecorded, nodes); }
  // A caller has recorded the operation.
  void CountOperation(const ir::OpDef& op) {
    metrics_.AddAlone(Counter::kOperationsRecorded);
    op_counts_.Add(op);
  }
  void CountBarrier() {
    Held();
    ++barriers_;
    metrics_.AddAlone(Counter::kBarriers);
  }
  uint64_t barriers() const { return Held(), barriers_; }
  OpCounts& op_counts() { return Held(), op_counts_; }
  void CountRecorded(MeshState& state, const ir::Builder& b, Replay::Kind kind, const ir::OpDef* op,
                     std::span<const ir::Value> results, int64_t nodes);
  // New tensors show the results.
  void Publish(const Place& place, std::span<ir::Value> results, ir::Location location, Tensors* made) {
    for (ir::Value& value : results) made->push_back(NewTensor(place, std::move(value), location));
  }

  // The value as others may go on from it: without a past that gradients could enter.
  static ir::Value Detached(ir::Builder& b, const ir::Value& value, bool requires_grad);
  // Returns the value that a tensor shows after this value is assigned to it.
  static ir::Value Assigned(ir::Builder& b, const ir::Value& value, bool requires_grad, Past past);
  absl::Status SetRequiresGrad(Tensor& tensor, bool on);
  // Checks that the one may be assigned to the other, and returns the value that is then shown.
  absl::StatusOr<ir::Value> Assignable(const Tensor& dst, const Tensor& src, Past past, ir::Location location);
  void Assign(Tensor& dst, ir::Value value);

  // Records many operations as one (optimizers): see UpdateRule. New values of targets are assigned like Assign does; a
  // failure leaves every target as it was.
  struct Scalars {
    std::vector<ir::Value> f32, f64;
  };
  static Scalars ScalarsOf(std::span<const double> scalars, std::span<Tensor* const> operands,
                           std::span<Tensor* const> targets);
  absl::StatusOr<Place> PlaceOfUpdate(std::span<Tensor* const> operands, std::span<Tensor* const> targets,
                                      ir::Location location);
  absl::StatusOr<std::vector<ir::Value>> Update(ir::Builder& b, std::span<Tensor* const> operands,
                                                const Scalars& scalars, std::span<Tensor* const> targets,
                                                ir::Location location, const UpdateRule& rule);

  // Under the lock: the tensors stay where they are, though their owners may let go of them, until they are let go of here, too.
  void KeepBorrowed(std::span<Tensor* const> tensors);
  void LetGoOfBorrowed(std::span<Tensor* const> tensors);

 private:
  friend class Replay;
  // States the thread rule: the lock is held.
  void Held() const ABSL_ASSERT_EXCLUSIVE_LOCK(mutex_) {}
  GeneratorState& DrawnIn(Frame* frame) { return frame != nullptr ? frame->drawn : generator; }
  // The state of a random operation, and the state of a stream for a function's call, at this place of the frame's stream.
  ir::Value StateAt(ir::Builder& b, Frame* frame, const GeneratorState& at);
  ir::Value StreamAt(ir::Builder& b, Frame* frame, const GeneratorState& at);
  // Returns the value that a tensor shows, as the frame knows it; null: nothing.
  ir::Value ValueIn(Frame* frame, const Tensor* tensor);
  void Bury() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TryBury() ABSL_LOCKS_EXCLUDED(mutex_);
  void AddDead(const Tensor* tensor);

  Owner& owner_;
  Services& services_;
  Metrics& metrics_;
  const std::shared_ptr<Metrics> shared_metrics_;  // data may outlive the engine
  OpCounts op_counts_;                             // under the lock
  Mutex mutex_;
  std::list<MeshState> meshes_;   // under the lock; none ever goes, and walks go on where one comes
  MeshState* default_ = nullptr;  // under the lock
  uint64_t time_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t barriers_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t counted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t waiting_ = 0;                           // threads that have the lock open; under the lock
  absl::InlinedVector<ir::Value, 1> next_states_;  // under the lock
  uint64_t steps_ = 0;                             // that replays have begun; under the lock
  const Replay* last_missed_ = nullptr;            // under the lock
  std::atomic<Tensor*> dead_{nullptr};
};

// Where the operation takes the generator's state; callers do not count it.
size_t StateOperand(const ir::OpDef& op);
// The caller's position, unless the status names one already.
absl::Status WithPosition(absl::Status status, ir::Location location);

}  // namespace weft::lazy
