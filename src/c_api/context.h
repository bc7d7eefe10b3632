// The context behind weft_context: the engine, what hooks were set, what options say, and what has to be waited for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/c_api/calling_out.h"
#include "src/c_api/guard.h"
#include "src/c_api/settings.h"
#include "src/c_api/trace_file.h"
#include "src/lazy/engine.h"
#include "src/ops/custom/functions.h"
#include "src/runtime/fork.h"
#include "src/runtime/line_file.h"
#include "src/runtime/mutex.h"
#include "weft_compile.h"
#include "weft_metrics.h"

namespace weft {
class CompileCacheStore;
}

namespace weft::c_api {

// Ends what a caller handed over, in the caller's floating-point environment. NULL is allowed.
inline void RunRelease(weft_release_fn release, void* user_data) {
  if (release == nullptr) return;
  const CallingOut out;
  release(user_data);
}

// A function, its data and how to end that; ends it exactly once.
class LogSink {
 public:
  LogSink(weft_log_fn log, void* user_data, weft_release_fn release, int min_level)
      : log_(log), user_data_(user_data), release_(release), min_level_(min_level) {}
  ~LogSink() { RunRelease(release_, user_data_); }
  LogSink(const LogSink&) = delete;
  int min_level() const { return log_ == nullptr ? WEFT_LOG_OFF : min_level_; }
  void Write(lazy::LogLevel level, std::string_view text) const {
    if (log_ == nullptr || static_cast<int>(level) < min_level_) return;
    const CallingOut out;
    log_(user_data_, static_cast<weft_log_level>(level), text.data(), text.size());
  }

 private:
  weft_log_fn log_;
  void* user_data_;
  weft_release_fn release_;
  int min_level_;
};

// The sink, or the release has run.
inline std::shared_ptr<LogSink> MakeLogSink(weft_log_fn log, void* user_data, weft_release_fn release, int min_level) {
  try {
    return std::make_shared<LogSink>(log, user_data, release, min_level);
  } catch (...) {
    RunRelease(release, user_data);
    throw;
  }
}

// Drops a reference of a context's handle as weft_context_release does: waits for the calls in progress if it was the last.
void ReleaseContext(weft_context* context);

// Where records go now. Outlives the context, because engines (which tensors hold) and caches log too.
class LogState {
 public:
  void Set(std::shared_ptr<LogSink> sink) {
    {
      MutexLock lock(mutex_);
      sink_.swap(sink);
      least_.store(sink_ == nullptr ? WEFT_LOG_OFF : sink_->min_level(), std::memory_order_relaxed);
    }
  }  // the old hook's release runs here, without the lock
  void Write(lazy::LogLevel level, std::string_view text) {
    std::shared_ptr<LogSink> sink;
    {
      MutexLock lock(mutex_);
      sink = sink_;
    }
    if (sink != nullptr) sink->Write(level, text);
  }

  // The least level that reaches anybody.
  const std::atomic<int>& least() const { return least_; }

 private:
  std::atomic<int> least_{WEFT_LOG_OFF};
  Mutex mutex_;
  std::shared_ptr<LogSink> sink_ ABSL_GUARDED_BY(mutex_);
};

// Thread rule: any thread.
class Context final : public RefCounted {
 public:
  static absl::StatusOr<Ref<Context>> Create(const weft_context_options& options);
  // Makes a context that records into a function's body. In everything else it is the context that it was begun in,
  // which it keeps; when it goes, a body that has not ended is abandoned.
  static Ref<Context> OfBody(Context& around, Ref<lazy::Frame> frame);

  lazy::Engine& engine() const { return *engine_; }
  const Settings& settings() const { return root().settings_; }
  // Null if compiled programs are not kept on disk.
  const std::shared_ptr<CompileCacheStore>& cache() const { return root().cache_; }
  ops::CustomFunctions& custom() const { return *root().custom_; }
  // Null: the program.
  lazy::Frame* frame() const { return frame_.get(); }
  lazy::Where where(Device* device = nullptr) const { return {device, frame_.get()}; }
  Device* device(size_t i = 0) const { return engine_->devices()[i]; }

  // FAILED_PRECONDITION in the child of a fork if the context had threads; CANCELLED once after weft_cancel. Called before
  // everything that can launch work, which from then on counts as having threads.
  absl::Status BeforeWork();
  // The same without the promise of work: recording.
  absl::Status Usable() const;
  void Cancel() { engine_->services().Cancel(); }

  LogState& log() { return *root().log_; }
  Trace& trace() const { return *root().trace_; }
  // A barrier, whose event this is, ends with this call: it waits (sync_wait) and writes metrics (metrics_file).
  absl::Status AfterBarrier(const Event& event) const;
  // Where callbacks wait; null: they do not.
  const std::shared_ptr<lazy::CallbackQueue>& queue() const { return root().queue_; }
  size_t RunQueue();

  // Runs work on a thread of its own (asynchronous saves); the context's end waits for it.
  absl::Status InBackground(std::function<void()> work);
  // InBackground for work of such a thread, which may live longer than a body's context.
  auto Starter() {
    return [&whole = root()](std::function<void()> work) { return whole.InBackground(std::move(work)); };
  }

  // Runs `work`; if memory was short and the pressure hook frees some, once more.
  template <typename Work>
  auto WithPressure(uint64_t bytes, Work&& work) {
    auto first = work();
    if (first.ok() || root().pressure_ == nullptr || !IsExhausted(first)) return first;
    return root().AskForMemory(bytes) ? work() : std::move(first);
  }
  // In the child of a fork what is pinned by threads that did not come along stays so.
  bool IsOfThisProcess() const { return made_in_ == ForkGeneration(); }

 private:
  Context() = default;
  // Reads the options of positions, of metrics after barriers and of reasons. `write` writes log records.
  void Observe(const Settings& settings, const std::function<void(LogLevel, std::string_view)>& write,
               lazy::Engine::Config* config);
  // Reads the options of traces.
  absl::Status SetTrace(const Settings& settings, const std::function<void(LogLevel, std::string_view)>& write,
                        std::shared_ptr<Trace> trace);
  const Context& root() const { return root_ != nullptr ? *root_ : *this; }
  Context& root() { return root_ != nullptr ? *root_ : *this; }
  // The last handle is gone: waits for everything. Afterwards only releases work.
  ~Context() override;
  static bool IsExhausted(const absl::Status& status) { return status.code() == absl::StatusCode::kResourceExhausted; }
  template <typename T>
  static bool IsExhausted(const absl::StatusOr<T>& result) {
    return IsExhausted(result.status());
  }

  bool AskForMemory(uint64_t bytes) const {
    const CallingOut out;
    return pressure_(pressure_data_, bytes) != 0;
  }

  const uint64_t made_in_ = ForkGeneration();
  Ref<lazy::Engine> engine_;
  Ref<Context> root_;       // of a body: everything below is its
  Ref<lazy::Frame> frame_;  // of a body
  Settings settings_;
  std::unique_ptr<LineFile> metrics_file_;  // null: nobody wants metrics after barriers
  weft_metrics_format metrics_format_ = WEFT_METRICS_XLA;
  bool sync_wait_ = false;
  std::shared_ptr<CompileCacheStore> cache_;
  // Whom the cache's warnings go through; null before the engine exists and once this context is gone.
  std::shared_ptr<std::atomic<lazy::Engine*>> cache_engine_ = std::make_shared<std::atomic<lazy::Engine*>>(nullptr);
  Mutex mutex_;
  std::shared_ptr<LogState> log_ = std::make_shared<LogState>();
  std::shared_ptr<lazy::CallbackQueue> queue_;
  struct Background {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  std::optional<Background> NextInBackground();  // takes it out
  std::vector<Background> background_ ABSL_GUARDED_BY(mutex_);
  weft_pressure_fn pressure_ = nullptr;
  void* pressure_data_ = nullptr;
  weft_release_fn pressure_release_ = nullptr;
  const std::shared_ptr<ops::CustomFunctions> custom_ =
      std::make_shared<ops::CustomFunctions>();  // programs hold it, too
  std::shared_ptr<Trace> trace_;                 // of the engine's metrics
  std::unique_ptr<TraceFile> trace_file_;        // null: nobody has asked for one
};
template <>
struct HandleTraits<weft_context> {
  using Object = Context;
  static constexpr HandleType kType = HandleType::kContext;
  static const ForkGuard* ForkOf(const Context& object) { return &object.engine().services().fork(); }
};
template <>
struct HandleTraits<weft_tensor> {
  using Object = lazy::Tensor;
  static constexpr HandleType kType = HandleType::kTensor;
  static const ForkGuard* ForkOf(const lazy::Tensor& object) { return &object.engine().services().fork(); }
  static const void* OwnerOf(const lazy::Tensor& tensor) { return &tensor.engine(); }
};

// A device of a context.
class DeviceObject final : public RefCounted {
 public:
  DeviceObject(Ref<lazy::Engine> engine, Device* device) : engine(std::move(engine)), device(device) {}
  const Ref<lazy::Engine> engine;
  Device* const device;
};
template <>
struct HandleTraits<weft_device> {
  using Object = DeviceObject;
  static constexpr HandleType kType = HandleType::kDevice;
  static const ForkGuard* ForkOf(const DeviceObject& object) { return &object.engine->services().fork(); }
};

// A mesh of a context.
class MeshObject final : public RefCounted {
 public:
  MeshObject(Ref<lazy::Engine> engine, const lazy::DeviceMesh* mesh)
      : engine(std::move(engine)), mesh(mesh), axes(ir::ToString(mesh->axes())) {}
  const Ref<lazy::Engine> engine;
  const lazy::DeviceMesh* const mesh;  // the engine's
  const std::string axes;
};
template <>
struct HandleTraits<weft_mesh> {
  using Object = MeshObject;
  static constexpr HandleType kType = HandleType::kMesh;
  static const ForkGuard* ForkOf(const MeshObject& object) { return &object.engine->services().fork(); }
};

// The device of an optional parameter: NULL = the engine's first.
absl::StatusOr<Device*> DeviceOr(weft_device* device, lazy::Engine& engine);
// The place of an optional parameter that says a place and no body: NULL = the mesh that has been set, else the first device.
absl::StatusOr<lazy::Where> PlaceOr(weft_device* device, lazy::Engine& engine);
// Where a context's calls make something of such a parameter: NULL = the body's device, in the program the first.
absl::StatusOr<lazy::Where> WhereOf(const Context& context, weft_device* device);

// The mesh on which a call is recorded: that of its operands, else the context's. INVALID_ARGUMENT where that is one device.
absl::StatusOr<const lazy::DeviceMesh*> MeshOf(const Context& context, std::span<lazy::Tensor* const> operands,
                                               std::string_view function);
// The elements on a place of an engine, perhaps another than the tensor's, cut as `spec` says ("": whole): copied by the devices
// where they can, else by the host. Computes the tensor and waits.
absl::StatusOr<Ref<lazy::Tensor>> CopyElements(lazy::Tensor& tensor, lazy::Engine& to, const lazy::Where& where,
                                               std::string_view spec);
// A text that may be NULL with length 0: empty.
absl::StatusOr<std::string_view> OptionalText(const char* text, size_t length, std::string_view parameter);

// A tensor parameter: a poisoned one gives the failure it stands for.
absl::StatusOr<Pin<lazy::Tensor>> GetTensor(const weft_tensor* tensor, std::string_view parameter);
// Why a parameter that is no tensor is none.
absl::Status NoTensor(const weft_tensor* tensor, std::string_view parameter);

// The tensors of a call, in any number, null where an optional one is absent.
class TensorList {
 public:
  void Reserve(size_t count) { references_.reserve(count), pointers_.reserve(count); }
  void Add(Ref<lazy::Tensor> tensor) {
    pointers_.push_back(tensor.get());
    references_.push_back(std::move(tensor));
  }
  lazy::Tensor* operator[](size_t i) const { return pointers_[i]; }
  operator std::span<lazy::Tensor* const>() const { return pointers_; }  // NOLINT: what the engine takes

 private:
  std::vector<Ref<lazy::Tensor>> references_;
  std::vector<lazy::Tensor*> pointers_;
};
absl::Status GetTensors(weft_tensor* const* tensors, size_t count, std::string_view parameter, TensorList* out);
// The same where NULL stands for an absent one.
absl::Status GetOptionalTensors(weft_tensor* const* tensors, size_t count, std::string_view parameter, TensorList* out);
// Checks of what a caller says of a tensor to be made: the dtype computes, the shape's bytes can be counted.
absl::StatusOr<DType> CheckedDType(uint32_t dtype);
absl::StatusOr<int64_t> CheckedBytes(DType dtype, const int64_t* dims, size_t rank);
// Dense elements of a caller's, as the engine holds them.
struct HostElements {
  DType dtype;
  std::span<const int64_t> dims;
  std::span<const std::byte> bytes;  // the caller's, or those of `unpacked`
};
// INVALID_ARGUMENT where the size is not that of the shape. `unpacked` gets elements of less than a byte.
absl::StatusOr<HostElements> ElementsOf(std::string_view function, weft_dtype dtype, const int64_t* dims, size_t rank,
                                        const void* data, size_t size, HostTensor* unpacked);

absl::Status MakeTensor(Ref<lazy::Tensor> tensor, weft_tensor** out);
weft_tensor* MakePoison(absl::Status status);

// Tells whether the format is StableHLO, or else Weft's own; an error for any other number.
absl::StatusOr<bool> IsStableHlo(weft_text_format format);

// Gives the position of the thread's next recorded operation: what a scope has set, else what weft_position_mark has, else,
// unless the option `positions` says otherwise, where the exported function was called from.
ir::Location CurrentLocation(const lazy::Engine& engine);
ir::Location CurrentLocation(lazy::Positions positions);
// weft_position_mark's; unknown takes it back.
void SetMarkedLocation(ir::Location location);
// A scope's; unknown takes it back.
void SetCurrentLocation(ir::Location location);

}  // namespace weft::c_api
