// The lazy engine: one per context. Records operations as nodes, decides where the graph is cut, and binds what programs
// compute to the tensors that show it. Everything above (c_api) turns handles into tensors and calls this.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/backends/backend.h"
#include "src/compiler/program_cache.h"
#include "src/compiler/trace.h"
#include "src/ir/builder.h"
#include "src/lazy/cut_policy.h"
#include "src/lazy/generator.h"
#include "src/lazy/options.h"
#include "src/lazy/tensor.h"
#include "src/runtime/metrics.h"

namespace weft::lazy {

using Tensors = absl::InlinedVector<Ref<Tensor>, 2>;

// Thread rule: any thread; one lock per engine, and the order of the lock is the order of the program. Compiling happens
// under the lock, running does not. The engine lives until its last tensor is gone.
class Engine final : public RefCounted {
 public:
  struct Config {
    Options options;
    std::vector<std::unique_ptr<Backend>> backends;  // at least one, with at least one device
    std::unique_ptr<compiler::ProgramStore> store;   // null: programs live as long as the engine
    LogHook log;                                     // may be empty
  };
  static absl::StatusOr<Ref<Engine>> Create(Config config);

  // Waits for the devices and until every compiled program is in the store. Afterwards nothing more can be launched
  // (FAILED_PRECONDITION); tensors may still be released.
  absl::Status Close();

  std::span<Device* const> devices() const { return device_list_; }
  const Options& options() const { return options_; }
  Metrics& metrics() { return metrics_; }

  // --- Leaves -------------------------------------------------------------------------------------------------------
  // Copies dense row-major bytes.
  absl::StatusOr<Ref<Tensor>> FromHost(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes, ir::Location location = {});
  // Foreign memory without a copy where the device can; never donated. `release` runs exactly once, also on failure, with
  // no lock of ours held and on a thread of the caller's: within a call into the engine or where the last reference goes.
  absl::StatusOr<Ref<Tensor>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release, ir::Location location = {});
  // Run-time arguments: values are never in a program. A double converts as HostTensor::SetDouble does.
  absl::StatusOr<Ref<Tensor>> Scalar(Device* device, DType dtype, double value, ir::Location location = {});
  absl::StatusOr<Ref<Tensor>> ScalarInt(Device* device, DType dtype, int64_t value, ir::Location location = {});

  // --- Recording ----------------------------------------------------------------------------------------------------
  // Absent optional operands are null. Operations on a random state get it from the engine: callers leave it out. All
  // operands must be on one device; operations without operands go to `device` (null: the first).
  absl::Status Record(const ir::OpDef& op, std::span<Tensor* const> operands, ir::Attrs attrs, ir::Location location,
                      Tensors* results, Device* device = nullptr);
  // d loss / d wrt[i]. `seed` may be null if loss has one element. wrt must require gradients.
  absl::StatusOr<Tensors> Gradient(Tensor* loss, std::span<Tensor* const> wrt, Tensor* seed = nullptr,
                                   ir::Location location = {});
  // Says that gradients will be asked for, before the tensor is used; off detaches it from its past.
  absl::Status SetRequiresGrad(Tensor* tensor, bool on);
  bool requires_grad(const Tensor* tensor) const;

  // dst shows src's value from now on; values recorded before keep the old one, whose buffer the next barrier may reuse.
  // Gradients do not flow through an assignment. Types and devices must agree.
  absl::Status Assign(Tensor* dst, Tensor* src, ir::Location location = {});
  // A second handle of the same value; later assignments to one do not touch the other.
  absl::StatusOr<Ref<Tensor>> Alias(Tensor* tensor);
  // Scopes: adopted tensors are temporaries, which no barrier computes for their own sake; Keep undoes it.
  void AdoptByScope(Tensor* tensor);
  void Keep(Tensor* tensor);

  // --- Evaluation ---------------------------------------------------------------------------------------------------
  // Barrier: everything live on the device (null: on all) that is not a scope's temporary. What can be known before the
  // launch fails here; then nothing has changed and the call may be repeated.
  absl::StatusOr<Ref<Event>> Sync(Device* device = nullptr);
  // These tensors only, and what they need if something else refers to it, so that it is not computed again.
  absl::StatusOr<Ref<Event>> Eval(std::span<Tensor* const> tensors);
  // Computes if need be (once), waits, copies. `destination` has the tensor's size in bytes.
  absl::Status ToHost(Tensor* tensor, std::span<std::byte> destination);
  // The buffer behind the value, computed if need be (scalars get one); ready when its event is. It comes held, so that
  // no launch takes it over: the caller must Unhold() it.
  absl::StatusOr<Ref<Buffer>> ToBuffer(Tensor* tensor);
  // Bytes [offset, offset + size) of the value, for streams; computes once, waits.
  absl::Status ReadBytes(Tensor* tensor, int64_t offset, std::span<std::byte> destination);
  // Waits for an event of this engine; DEADLINE_EXCEEDED, or why it was interrupted, if that comes first.
  absl::Status WaitFor(const Event& event, int64_t timeout_ns = -1);

  // Asks waits to give up. One atomic step: signal handlers may. What runs goes on: no step is ever half done.
  void Cancel() { cancels_.fetch_add(1, std::memory_order_relaxed); }
  uint32_t cancels() const { return cancels_.load(std::memory_order_relaxed); }
  // CANCELLED if a request came since `before` (an earlier cancels()) or nobody has noticed it yet, which now has happened.
  absl::Status CheckCancelled(uint32_t before);
  // The same for whoever waits, every kLookNs; FAILED_PRECONDITION in the child of a fork, where what was running is not.
  absl::Status Interrupted(uint32_t before);
  static constexpr int64_t kLookNs = 20'000'000;
  // Work that somebody may wait for is about to start in this process.
  void StartsWork();

  // Everything launched so far on the device (null: on all).
  absl::Status Wait(Device* device = nullptr, int64_t timeout_ns = -1);

  // --- State, text, statistics --------------------------------------------------------------------------------------
  GeneratorState generator() const;
  void set_generator(GeneratorState state);
  // The pending graph behind the tensors as IR text; what is already computed shows as parameters.
  absl::StatusOr<std::string> GraphText(std::span<Tensor* const> tensors);
  // Counters, then memory per device; `json` as one object.
  std::string Report(bool json) const;
  // The newest 16, oldest first.
  std::vector<std::string> LastWarnings() const;
  void Log(LogLevel level, std::string text);

  // For code that records many operations as one (optimizers): values of `operands` in, new values of `targets` out,
  // assigned like Assign does. Scalars come as run-time arguments of the computing type: f64 for f64 targets, else f32.
  // A failure leaves every target as it was.
  struct UpdateCall {
    ir::Builder& b;
    std::span<const ir::Value> operands;
    std::span<const ir::Value> scalars_f32;  // one per scalar
    std::span<const ir::Value> scalars_f64;
    std::span<ir::Value> targets;
  };
  absl::Status Update(std::span<Tensor* const> operands, std::span<const double> scalars,
                      std::span<Tensor* const> targets, ir::Location location,
                      absl::FunctionRef<absl::Status(const UpdateCall&)> build);

 private:
  friend class Tensor;
  class Lock;
  class Releases;

  // Pending work and live tensors of one device.
  struct DeviceState {
    Device* device = nullptr;
    Backend* backend = nullptr;
    compiler::ProgramCache* programs = nullptr;
    Tensor* first = nullptr;  // in creation order
    Tensor* last = nullptr;
    CutPolicy policy;
    bool postponed = false;  // the last automatic cut could not be had, and a warning has said so
    Ref<Event> last_event;
  };

  Engine();
  ~Engine() override;

  // --- engine.cc
  DeviceState* StateOf(const Device* device);
  absl::StatusOr<DeviceState*> CheckDevice(const Device* device);
  // Ours, and not expired.
  absl::Status CheckTensor(const Tensor* tensor, std::string_view what) const;
  ir::Value NewLeaf(const ir::Type& type, Ref<Data> data, bool needs_gradient = false);
  Ref<Tensor> NewTensor(DeviceState& state, ir::Value value, ir::Location location);
  absl::StatusOr<Ref<Tensor>> NewBufferTensor(Device* device, Ref<Buffer> buffer, ir::Location location);
  absl::StatusOr<Ref<Tensor>> NewScalar(Device* device, const HostTensor& value, ir::Location location);
  void DrainDead();     // under the lock
  void TryDrainDead();  // without it
  void Unlock();        // and runs what waited for that
  void RunReleases();
  void FlushLog();

  // --- record.cc
  // The value as others may go on from it: without a past that gradients could enter.
  ir::Value Detached(ir::Builder& b, const ir::Value& value, bool requires_grad);
  void AssignValue(Tensor& dst, ir::Value value);
  // Automatic cuts, before an operation is recorded, which they never fail.
  void CutIfDue(DeviceState& state);
  // Counts what the builder made; eager and debug modes compute the results.
  absl::Status Recorded(DeviceState& state, const ir::Builder& b, const void* what, std::span<const ir::Value> results);
  absl::Status CheckNumbers(const ir::OpDef& op, std::span<const ir::Value> operands,
                            std::span<const ir::Value> results);

  // --- evaluate.cc
  // Flattens what the values need into trace_ and arguments_. Values that are known already become arguments.
  absl::Status BuildTrace(std::span<const ir::Value> outputs);
  // Where the value is among outputs_ of one collection, whose walk it is; outputs_.size() if it is not yet.
  size_t FindOutput(const ir::Walk& walk, const ir::Value& value) const;
  void AddOutput(const ir::Value& value, Tensor* owner);
  // Live tensors without data, distinct values in creation order, into outputs_ and owners_.
  void CollectLive(DeviceState& state, bool temporaries_too);
  // These values, and what must be computed to know them and is referred to from outside that: into outputs_.
  void CollectShared(DeviceState& state, std::span<const ir::Value> values);
  // Computes outputs_ and hangs the results on their nodes. A barrier donates what owners_ assigned over.
  absl::Status Launch(DeviceState& state, CutReason reason);
  void ChooseDonations(DeviceState& state);
  absl::Status Compute(DeviceState& state, std::span<const ir::Value> values, CutReason reason);
  absl::Status SyncDevice(DeviceState& state);

  // --- setbacks.cc
  // RESOURCE_EXHAUSTED names the largest of outputs_; other errors as they are.
  absl::Status OutOfMemory(const absl::Status& status) const;
  // What the device has left; asked again when all that runs has run, if that is less than wanted. -1: unknown.
  int64_t RoomFor(double wanted, const DeviceState& state) const;
  // Whether outputs_ and a program's temporaries can be stored, as far as anybody knows before it is tried.
  absl::Status CheckRoom(const DeviceState& state, int64_t temporary_bytes) const;
  // Takes the largest out of outputs_, from number `asked` on, until the rest can be stored; what they are made of comes
  // instead. `automatic`: only those that are much larger than all leaves. An error: there is nothing that can be stored.
  absl::Status MakeRoom(DeviceState& state, size_t asked, bool automatic);
  // The compiler has refused outputs_: looks for those at fault, which later cuts leave out, and says so in the error.
  absl::Status SetAside(DeviceState& state, const absl::Status& status);
  bool Compiles(DeviceState& state, std::span<const ir::Value> values);
  // No donation takes over what a value that stays pending is made of.
  void KeepLeavesOf(const ir::Value& value, const ir::Walk& walk);
  void PostponeCut(DeviceState& state, const absl::Status& status);

  // --- evaluate.cc again
  // The known value of the tensor, computed if need be; under the lock.
  absl::StatusOr<Data*> Materialize(Tensor& tensor, CutReason reason);
  absl::Status Read(Tensor* tensor, int64_t offset, std::span<std::byte> destination, std::string_view what);

  Options options_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<compiler::ProgramStore> store_;
  LogHook log_;
  Metrics metrics_;
  std::vector<Device*> device_list_;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<compiler::ProgramCache>> programs_;
  std::vector<DeviceState> devices_;  // never grows after Create
  GeneratorState generator_;
  bool closed_ = false;
  uint64_t epoch_ = 0;  // of the marks in Data
  std::atomic<Tensor*> dead_{nullptr};
  // Of foreign memory that died under the lock or on a thread of ours; run by whoever next leaves the engine.
  std::shared_ptr<Releases> releases_;

  std::atomic<uint32_t> cancels_{0}, cancels_noticed_{0};
  std::atomic<int64_t> process_{0};  // where work was started first

  // Messages wait here until no lock is held.
  mutable std::mutex log_mutex_;
  std::deque<std::string> warnings_;
  std::vector<std::pair<LogLevel, std::string>> log_queue_;
  std::atomic<bool> log_waiting_{false};

  // Of the cut in hand; kept from cut to cut, so that the steady state allocates next to nothing.
  compiler::Trace trace_;
  std::vector<Data*> arguments_;
  std::vector<ir::Value> outputs_;
  std::vector<Tensor*> owners_;  // of outputs_, null if none
  std::vector<std::pair<const ir::Node*, uint32_t>> stack_;
  std::vector<uint32_t> words_;
  std::vector<Ref<Buffer>> buffers_;
  std::vector<uint8_t> donated_;
};

// Holds the engine's lock, buries the dead first, delivers messages last. Keeps the engine alive.
class Engine::Lock {
 public:
  explicit Lock(Engine& engine);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Ref<Engine> engine_;
};

}  // namespace weft::lazy
