// The lazy engine: one per context. Records operations as nodes, decides where the graph is cut, and binds what programs
// compute to the tensors that show it. Everything above (c_api) turns handles into tensors and calls this.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/lazy/record/recorder.h"
#include "src/lazy/run/evaluator.h"
#include "src/lazy/service/services.h"
#include "src/lazy/value/window.h"

namespace weft::lazy {

// Thread rule: any thread; one lock per engine, and the order of the lock is the order of the program. Nothing that takes
// time happens under the lock: while one thread waits for a compilation or for memory, the others go on. The engine lives
// until its last tensor is gone.
class Engine final : public Owner {
 public:
  struct Config {
    Options options;
    std::vector<std::unique_ptr<Backend>> backends;                  // at least one, with at least one device
    std::unique_ptr<compiler::ProgramStore> store;                   // null: programs live as long as the engine
    LogHook log;                                                     // may be empty
    std::function<void(std::string_view)> explain;                   // why programs are made, a line each; may be empty
    bool explain_launches = false;                                   // and a line a launch
    std::shared_ptr<CallbackQueue> queue;                            // null: callbacks do not wait
    std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();  // the backends may have it, too
  };
  static absl::StatusOr<Ref<Engine>> Create(Config config);

  // Waits for the devices and until every compiled program is in the store. Afterwards nothing more can be launched
  // (FAILED_PRECONDITION); tensors may still be released.
  absl::Status Close();

  std::span<Device* const> devices() const { return device_list_; }
  const Options& options() const { return options_; }
  Metrics& metrics() { return *metrics_; }
  Services& services() { return services_; }

  // --- Meshes ---------------------------------------------------------------------------------------------------------
  // Devices of one backend of this engine, as many as the axes say and each once, in row-major order. The same again gives the
  // same mesh, which lives as long as the engine.
  absl::StatusOr<const DeviceMesh*> Mesh(std::span<Device* const> devices, ir::Mesh axes);
  // Values made without a place (leaves, operations without operands) is made there from now on; null: on the first device.
  void SetMesh(const DeviceMesh* mesh);
  const DeviceMesh* mesh() const;
  // The first device by itself.
  const DeviceMesh& whole_device() { return recorder_.meshes().front().mesh; }
  using Lying = lazy::Lying;
  absl::StatusOr<Lying> LyingOf(Tensor* tensor);  // of a value that is computed if need be

  // --- Leaves -------------------------------------------------------------------------------------------------------
  // Copies dense row-major bytes. In a function's body these and scalars are literals. `spec` says how they lie on the mesh, a word a
  // dimension; empty: each holder has all.
  absl::StatusOr<Ref<Tensor>> FromHost(const Where& where, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes, ir::Location location = {},
                                       std::string_view spec = {});
  // The same of bytes that `fill` writes, once or not at all, under no lock: into the tensor's own memory where the host writes to the
  // device's and it holds such elements as they are, else into memory that the device takes over or copies.
  using FillBytes = absl::FunctionRef<absl::Status(std::span<std::byte>)>;
  absl::StatusOr<Ref<Tensor>> FromFilled(const Where& where, const ir::Type& type, FillBytes fill);
  // The same a box after the other, each once for all devices that have it.
  using FillBox = absl::FunctionRef<absl::Status(const ir::Box& box, std::span<std::byte> bytes)>;
  absl::StatusOr<Ref<Tensor>> FromBoxes(const Where& where, const ir::Type& type, std::string_view spec, FillBox fill);
  // The value of which parts[i] is what the i-th device of the mesh has; of copies the first counts. They may be of another engine.
  absl::StatusOr<Ref<Tensor>> FromShards(const DeviceMesh& mesh, const ir::Type& type, std::string_view spec,
                                         std::span<Tensor* const> parts, ir::Location location);
  // Foreign memory without a copy where the device can and holds such elements as they are; never donated. `release` runs exactly
  // once, also on failure, with no lock of ours held and on a thread of the caller's: within a call into the engine or where the last reference goes.
  absl::StatusOr<Ref<Tensor>> Adopt(const Where& where, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release, ir::Location location = {});
  // A scalar where `like` is and of its dtype. A constant is part of programs; else it is a run-time argument.
  absl::StatusOr<Ref<Tensor>> ScalarLike(const Tensor& like, const HostTensor& value, bool constant,
                                         ir::Location location = {});
  // Run-time arguments: values are never in a program. A double converts as HostTensor::SetDouble does.
  absl::StatusOr<Ref<Tensor>> Scalar(const Where& where, DType dtype, double value, ir::Location location = {});
  absl::StatusOr<Ref<Tensor>> ScalarInt(const Where& where, DType dtype, int64_t value, ir::Location location = {});

  // --- Recording ----------------------------------------------------------------------------------------------------
  // Absent optional operands are null. Operations on a random state get it from the engine: callers leave it out, and give null
  // for the stream of a function that draws. All operands must be on one device. What has no operands to say so is recorded at
  // `where`.
  absl::Status Record(const ir::OpDef& op, std::span<Tensor* const> operands, ir::Attrs attrs, ir::Location location,
                      Tensors* results, const Where& where = {}, ir::RegionSpan regions = {});
  // The same for who has names of tensors and no references: `find` fills in the operands under the lock, under which alone
  // tensors die, so that keeping them for the call costs nothing.
  using FindOperands = absl::FunctionRef<absl::Status()>;
  absl::Status Record(const ir::OpDef& op, std::span<Tensor* const> operands, FindOperands find, ir::Attrs attrs,
                      ir::Location location, Tensors* results, const Where& where = {}, ir::RegionSpan regions = {});
  // Many operations under one lock: all are recorded, or none and `failed` is the index of the one that could not be.
  struct Call {
    const ir::OpDef* op = nullptr;
    std::span<Tensor*> operands;  // null: absent, or a result of an earlier call, which is filled in
    struct Earlier {
      size_t operand, call, result;  // the call and its result exist
    };
    std::span<const Earlier> earlier;
    ir::Attrs attrs;
    Device* device = nullptr;  // null: that of the operands, else the first
    bool drop = false;         // nobody wants the results but later calls: they go with the last of those
    Tensors results;           // comes out; none of a call that was dropped
  };
  absl::Status RecordMany(std::span<Call> calls, FindOperands find, ir::Location location, size_t* failed,
                          Frame* frame = nullptr);
  // The cotangents of an operation's inputs, null where none flows: see autodiff::OpGradient.
  absl::StatusOr<Tensors> OpGradient(const Recorder::OpGradientCall& call, ir::Attrs attrs, ir::Location location = {});
  // The body of a function: its parameters are tensors to record with, through `where`s with the frame or not. Finished,
  // it is a value; whoever lets go of the frame of an open one abandons it first.
  absl::StatusOr<Ref<Frame>> BeginFunction(const Where& where, std::string name, std::span<const ir::Type> inputs,
                                           Tensors* parameters, ir::Location location = {});
  absl::StatusOr<Recorder::Finished> FinishFunction(Frame& frame, std::span<Tensor* const> outputs);
  void AbandonFunction(Frame& frame);
  // d loss / d wrt[i]. `seed` may be null if loss has one element. wrt must require gradients.
  absl::StatusOr<Tensors> Gradient(Tensor* loss, std::span<Tensor* const> wrt, Tensor* seed = nullptr,
                                   ir::Location location = {});
  // --- Functions by themselves -----------------------------------------------------------------------------------------
  // A program that is one call of a function, whose inputs are known. It is the same wherever the inputs come from, so that it
  // can be compiled before there are any.
  struct FunctionRun {
    const Ref<const ir::Function>& function;
    bool draws = false;                // the last parameter is a stream, which has no input
    std::span<const uint8_t> donated;  // per input: its memory may be taken over
  };
  // Computes inputs that are pending, then launches. Donated inputs are gone once it has been launched: whoever reads them is
  // told. Gradients do not flow through. A failure leaves everything as it was.
  absl::StatusOr<Tensors> RunFunction(const FunctionRun& run, std::span<Tensor* const> inputs,
                                      ir::Location location = {}, const Where& where = {});
  // Has the program made, and kept; for another target than this machine if one is named (an option `isa`). As CompileEval.
  absl::StatusOr<Ref<Event>> CompileFunction(const FunctionRun& run, const Where& where, std::string_view isa,
                                             bool wait);
  // Returns the figures of the function's program, which is compiled if need be.
  absl::StatusOr<ExecutableStats> FunctionStats(const FunctionRun& run, const Where& where);

  // Says that gradients will be asked for, before the tensor is used; off detaches it from its past.
  absl::Status SetRequiresGrad(Tensor* tensor, bool on);
  bool requires_grad(const Tensor* tensor) const;

  // dst shows src's value from now on; values recorded before keep the old one, whose buffer the next barrier may reuse.
  // Gradients do not flow through an assignment. Types and devices must agree.
  absl::Status Assign(Tensor* dst, Tensor* src, Past past = Past::kCut, ir::Location location = {});
  // A second handle of the same value; later assignments to one do not touch the other.
  absl::StatusOr<Ref<Tensor>> Alias(Tensor* tensor);
  // Scopes: adopted tensors are temporaries, which no barrier computes for their own sake; Keep undoes it.
  void AdoptByScope(Tensor* tensor) {
    (void)AdoptByScope([tensor] { return tensor; });
  }
  // Found under the lock, as for Record. False if it is null.
  bool AdoptByScope(absl::FunctionRef<Tensor*()> find);
  // For what a caller has beside the engine and guards by its lock; short, and calls nothing of ours.
  void Locked(absl::FunctionRef<void()> use);
  void Keep(Tensor* tensor);

  // --- Evaluation ---------------------------------------------------------------------------------------------------
  // Barrier: everything live on the device (null: on all) that is not a scope's temporary. What can be known before the
  // launch fails here; then nothing has changed and the call may be repeated.
  absl::StatusOr<Ref<Event>> Sync(const Where& where = {}, ir::Location at = {});
  // These tensors only, and what they need if something else refers to it, so that it is not computed again.
  absl::StatusOr<Ref<Event>> Eval(std::span<Tensor* const> tensors);
  // Has the programs made, and kept, that Sync or Eval would run now; launches nothing. Fails where those would; what
  // becomes of the compiling itself is the event's outcome. `wait`: returns when it has happened, with its outcome.
  absl::StatusOr<Ref<Event>> CompileSync(const Where& where, bool wait);
  absl::StatusOr<Ref<Event>> CompileEval(std::span<Tensor* const> tensors, bool wait);
  // Computes if need be (once), waits, copies. `destination` has the tensor's size in bytes.
  absl::Status ToHost(Tensor* tensor, std::span<std::byte> destination);
  // The value on another device or mesh of the same backend, cut as `spec` says ("": whole), copied by the devices: computed if need
  // be, waited for; no gradient flows. Null: it has to go over the host.
  absl::StatusOr<Ref<Tensor>> CopyOver(Tensor* tensor, const Where& where, std::string_view spec,
                                       ir::Location location = {});
  // The buffer behind the value, computed if need be (scalars get one); ready when its event is. It comes held, so that
  // no launch takes it over: the caller must Unhold() it.
  absl::StatusOr<Ref<Buffer>> ToBuffer(Tensor* tensor);
  // The only element of an i32 tensor that says how large a result is. As a read, but the cut has a reason of its own. `what`
  // names the result.
  absl::StatusOr<int64_t> Size(Tensor* count, std::string_view what);
  // Bytes [offset, offset + size) of the value, for streams; computes once, waits.
  absl::Status ReadBytes(Tensor* tensor, int64_t offset, std::span<std::byte> destination);
  // The elements of a box, dense; the destination is as long as they are.
  absl::Status ReadBox(Tensor* tensor, const ir::Box& box, std::span<std::byte> destination);
  // The same of what the device holds, in elements of the type that options().held says.
  absl::Status ReadHeld(Tensor* tensor, int64_t offset, std::span<std::byte> destination);
  // The caller knows that something launched has failed: an event said so.
  void Told();
  // Everything launched so far on the device (null: on all).
  absl::Status Wait(const Where& where = {}, int64_t timeout_ns = -1);

  // --- State, text, statistics --------------------------------------------------------------------------------------
  GeneratorState generator() const;
  void set_generator(const GeneratorState& state);
  // The pending graph behind the tensors, without any that of the next barrier; what is already computed shows as parameters.
  enum class TextFormat : uint8_t { kIr, kStableHlo, kDot, kOptimised, kLoops, kLlvm, kAssembly };
  absl::StatusOr<std::string> GraphText(std::span<Tensor* const> tensors, TextFormat format = TextFormat::kIr);
  // The launch lists of the programs that these tensors, or the next barrier, need. Compiles those that are not there, and waits.
  absl::StatusOr<std::string> PlanText(std::span<Tensor* const> tensors);
  // Lists what holds the device's memory, for people or as a JSON object.
  absl::StatusOr<std::string> MemoryReport(const Device& device, bool json) const;
  // The programs in memory as a JSON array, the newest first.
  std::string ListPrograms();
  struct KnownProgram {
    std::shared_ptr<const compiler::Program> program;
    const compiler::ProgramCache* cache;
  };
  std::vector<KnownProgram> Programs();
  // One of them from what was recorded, without its positions.
  absl::StatusOr<std::string> KnownText(const KnownProgram& known, TextFormat format) const;
  // From here on no program is made that is not there; or the option compile_limit holds again.
  void SettleCompiles(bool settled);
  // Counters, samples, and memory per device.
  Snapshot TakeSnapshot() const;
  // Nothing if there is no such counter; of an operation "op::matmul".
  std::optional<int64_t> CounterOf(std::string_view name) const;
  void ClearMetrics();

  // New values of the targets by the rule.
  absl::Status Update(std::span<Tensor* const> operands, std::span<const double> scalars,
                      std::span<Tensor* const> targets, ir::Location location, const Ref<const UpdateRule>& rule);

 private:
  void Released(const Tensor* tensor) override { recorder_.Release(tensor); }
  void PutBackEnded() override;
  using Lock = Recorder::Lock;

  explicit Engine(Config config);
  ~Engine() override;
  // All that there are, those of meshes and other targets included.
  std::vector<compiler::ProgramCache*> Caches();
  absl::StatusOr<std::string> ModuleText(ir::Module module, const compiler::ProgramCache& cache,
                                         TextFormat format) const;

  bool lazy() const { return options_.mode == Mode::kLazy; }
  // Calls `make` for a buffer, and again when what runs has ended where there is no memory; then names what holds the memory.
  absl::StatusOr<Ref<Buffer>> WithRoom(Device* device, absl::FunctionRef<absl::StatusOr<Ref<Buffer>>()> make);
  // Copies host bytes, as what is held for them.
  absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes);
  // The same for each holder its part.
  absl::StatusOr<Shards> Upload(const Placement& placement, DType dtype, std::span<const int64_t> dims,
                                std::span<const std::byte> bytes);
  class Filling;  // engine_filled.cc
  // Some of the shards may be `others`' too: no launch takes those over.
  absl::StatusOr<Ref<Tensor>> NewBufferTensor(const Placement& placement, const ir::Type& type, Shards shards,
                                              ir::Location location, std::span<const size_t> others = {});
  absl::StatusOr<Ref<Tensor>> NewScalar(const Where& where, const HostTensor& value, ir::Location location);
  HostTensor Rounded(const HostTensor& value) const;
  // Under the lock; in a body always a constant.
  Ref<Tensor> ScalarAt(const Place& place, const HostTensor& value, bool constant, ir::Location location);
  Ref<Tensor> NewLiteral(const Place& place, HostTensor value, ir::Location location);
  // Records once an automatic cut that was due is through; `place` is asked again if others had the lock meanwhile.
  template <typename PlaceFn>
  absl::StatusOr<Place> PlaceAfterCut(Lock& lock, PlaceFn&& place_of);
  absl::StatusOr<std::vector<ValuesAt>> ValuesOf(std::span<Tensor* const> tensors, std::string_view what);
  // A call that nothing shows, and what its results may take over.
  struct FunctionCall;
  // On inputs that are known; `offers` are those whose memory may be taken over.
  absl::Status CallFunction(const DeviceMesh& mesh, const FunctionRun& run, std::span<const uint8_t> offers,
                            ir::Location location, FunctionCall* call);
  // Returns the inputs' values, computed if need be, as buffers and without a past. Clears the offers of donation that
  // somebody else could miss.
  absl::StatusOr<ir::Values> KnownInputs(Lock& lock, MeshState& state, std::span<Tensor* const> inputs,
                                         std::vector<uint8_t>* offers);
  absl::StatusOr<Ref<Evaluator::Job>> CompileJob(const FunctionRun& run, const Where& where, std::string_view isa,
                                                 Evaluator::ProgramPointer* known);
  absl::StatusOr<compiler::ProgramCache*> ProgramsFor(const MeshState& state, std::string_view isa);
  compiler::ProgramCache::Config CacheConfig(Backend& backend, ProgramOptions program);
  // Why programs were made, all together.
  void ExplainAll();
  // In elements of `dtype`: the type's own, or what is held for it.
  absl::StatusOr<Ref<Buffer>> BufferOfWords(const Data& data, const ir::Type& type, DType dtype, Device* device);
  absl::StatusOr<Ref<Event>> Compiled(std::span<const Ref<Evaluator::Job>> jobs, bool wait);
  // RecordLocked, unless the call comes as before; notes it.
  absl::Status RecordOrDefer(Lock& lock, const ir::OpDef& op, std::span<Tensor* const> operands, ir::Attrs&& attrs,
                             ir::Location location, const Where& where, ir::RegionSpan regions, Tensors* made,
                             Recorder::Draw* drawn);
  absl::Status RecordLocked(Lock& lock, const ir::OpDef& op, std::span<Tensor* const> operands, ir::Attrs&& attrs,
                            ir::Location location, const Where& where, ir::RegionSpan regions, Tensors* made,
                            Recorder::Draw* drawn);
  // Tells whether the call is deferred because it equals that of a noted step; its results are made then.
  bool Defer(const Replay::Call& call, const Place& place, Tensors* made);
  // The call has been recorded, which opened the lock so often, and goes into the replay's step; `targets` show its results.
  void Note(Replay& replay, uint64_t opened, const Replay::Call& call, std::span<const ir::Value> results,
            int64_t nodes, std::span<Tensor* const> targets);
  // Counts what was recorded; eager and debug modes compute it.
  absl::Status Finish(Lock& lock, const Place& place, const ir::Builder& b, const void* what,
                      std::span<const ir::Value> results);
  // The known value, computed if need be.
  absl::StatusOr<Data*> Materialize(Lock& lock, const Tensor& tensor, const ir::Value& value,
                                    CutReason reason = CutReason::kHostRead);
  // Says what the option host_read says of a value that is to be computed now to be read.
  absl::Status MayRead(const Tensor& tensor);
  absl::Status Read(Tensor* tensor, const Window& window, std::span<std::byte> destination, std::string_view what);
  // Calls `once`, and again where the value that it gives was made again after a launch that failed.
  absl::Status UntilReadable(Tensor* tensor, absl::FunctionRef<absl::Status(Ref<Data>* read_of)> once);
  absl::Status ReadOnce(Tensor* tensor, const Window& window, std::span<std::byte> destination, std::string_view what,
                        Ref<Data>* read_of);
  class Copying;  // engine_copies.cc
  // The launch that was to make what the tensor showed has failed: whether it now shows what can be read.
  absl::StatusOr<bool> ReadableAfter(const Tensor& tensor, Data& lost, const absl::Status& outcome);

  const Options options_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<compiler::ProgramStore> store_;
  const std::shared_ptr<Metrics> metrics_;
  const std::function<void(std::string_view)> explain_;
  const bool explain_launches_;
  const std::shared_ptr<std::atomic<int64_t>> programs_made_ = std::make_shared<std::atomic<int64_t>>(0);
  Services services_;
  std::vector<Device*> device_list_;
  std::vector<std::unique_ptr<compiler::ProgramCache>> programs_;
  // The programs of meshes on which each device has its part; under the recorder's lock.
  std::vector<std::unique_ptr<compiler::ProgramCache>> mesh_programs_;
  // For other targets, by backend and name; under the recorder's lock. Nothing is launched from them.
  std::map<std::pair<const Backend*, std::string>, std::unique_ptr<compiler::ProgramCache>, std::less<>> other_targets_;
  // Where values were read under host_read=warn; under the recorder's lock.
  std::set<std::pair<uint32_t, uint32_t>> places_read_;
  mutable Recorder recorder_;
  Evaluator evaluator_;  // before anything that its compilations use goes
};

inline Engine& Tensor::engine() const { return static_cast<Engine&>(*owner_); }

}  // namespace weft::lazy
