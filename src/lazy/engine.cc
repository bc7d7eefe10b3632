// Life of the engine and of its tensors: devices, leaves, the list of the dead, messages, reports.
#include "src/lazy/engine.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/compiler/lower.h"
#include "src/ir/text.h"
#include "src/ops/registry.h"
#include "src/runtime/thread_pool.h"

namespace weft::lazy {
namespace {

constexpr size_t kWarningsKept = 16;

// The engine whose lock this thread holds.
constinit thread_local const Engine* t_locked = nullptr;

// Scalars as the argument block holds them: 64-bit elements take two words, low half first, narrower ones one.
absl::InlinedVector<uint32_t, Data::kMaxWords> WordsOf(const HostTensor& value) {
  absl::InlinedVector<uint32_t, Data::kMaxWords> words;
  const size_t width = static_cast<size_t>(BytesOf(value.dtype()));
  for (size_t i = 0; i < value.bytes().size(); i += width) {
    uint64_t bits = 0;
    std::memcpy(&bits, value.bytes().data() + i, width);
    words.push_back(static_cast<uint32_t>(bits));
    if (width == 8) words.push_back(static_cast<uint32_t>(bits >> 32));
  }
  return words;
}

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

// What the owners of foreign memory want done when it is no longer needed. They may wait for locks of their own or call
// us again, so it never runs under the lock, nor on a thread that others wait for under it.
class Engine::Releases {
 public:
  void Add(std::function<void()> release) {
    std::unique_lock lock(mutex_);
    if (!closed_) {
      waiting_.push_back(std::move(release));
      any_.store(true, std::memory_order_release);
      return;
    }
    lock.unlock();
    release();
  }
  void Run() {
    while (any_.load(std::memory_order_acquire)) {
      std::vector<std::function<void()>> now;
      {
        std::lock_guard lock(mutex_);
        now.swap(waiting_);
        any_.store(false, std::memory_order_relaxed);
      }
      for (const auto& release : now) release();
    }
  }
  // From here on at once: there is no engine any more whose lock could matter.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    Run();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> waiting_;
  std::atomic<bool> any_{false};
  bool closed_ = false;
};

Engine::Engine() : releases_(std::make_shared<Releases>()) {}

void Tensor::Destroy(const Tensor* tensor) {
  Ref<Engine> engine = tensor->engine_;
  Tensor* dead = engine->dead_.load(std::memory_order_relaxed);
  do {
    tensor->next_dead_ = dead;
  } while (!engine->dead_.compare_exchange_weak(dead, const_cast<Tensor*>(tensor), std::memory_order_release,
                                                std::memory_order_relaxed));
  // Whoever holds the lock buries the dead; if nobody does, memory goes back at once.
  engine->TryDrainDead();
}

void Engine::TryDrainDead() {
  // Who holds the lock looks again when it lets go.
  while (dead_.load(std::memory_order_acquire) != nullptr && t_locked != this && mutex_.try_lock()) {
    t_locked = this;
    DrainDead();
    Unlock();
  }
}

void Engine::Unlock() {
  t_locked = nullptr;
  mutex_.unlock();
  if (!OnLibraryThread()) releases_->Run();
}

void Engine::RunReleases() {
  if (t_locked == nullptr && !OnLibraryThread()) releases_->Run();
}

Engine::Lock::Lock(Engine& engine) : engine_(Ref<Engine>::Share(&engine)) {
  engine.mutex_.lock();
  t_locked = &engine;
  engine.DrainDead();
}

Engine::Lock::~Lock() {
  Engine& engine = *engine_;
  engine.Unlock();
  // Tensors released by others while the lock was held.
  engine.TryDrainDead();
  if (engine.log_waiting_.load(std::memory_order_acquire)) engine.FlushLog();
}

void Engine::DrainDead() {
  Tensor* tensor = dead_.exchange(nullptr, std::memory_order_acquire);
  while (tensor != nullptr) {
    Tensor* next = tensor->next_dead_;
    DeviceState& state = *StateOf(tensor->device_);
    (tensor->previous_ != nullptr ? tensor->previous_->next_ : state.first) = tensor->next_;
    (tensor->next_ != nullptr ? tensor->next_->previous_ : state.last) = tensor->previous_;
    delete tensor;
    tensor = next;
  }
}

absl::StatusOr<Ref<Engine>> Engine::Create(Config config) {
  const Options& options = config.options;
  if (options.max_pending_nodes < 0 || options.max_pending_bytes < 0 || options.repetition_nodes < 0) {
    return UserError("context options: limits of automatic cuts must be 0 (never) or positive");
  }
  if (options.hash_bits < 1 || options.hash_bits > 128) {
    return UserError("context options: hash_bits is ", options.hash_bits, "; it must be 1 to 128");
  }
  Ref<Engine> engine(new Engine());
  engine->options_ = options;
  engine->backends_ = std::move(config.backends);
  engine->store_ = std::move(config.store);
  engine->log_ = std::move(config.log);
  engine->generator_.key = options.seed;
  for (const auto& backend : engine->backends_) {
    compiler::ProgramCache::Config cache;
    cache.backend = backend.get();
    cache.options.isa = options.isa;
    cache.options.verify_between_passes = options.verify_between_passes;
    cache.hash_bits = options.hash_bits;
    cache.max_programs = options.max_programs;
    cache.store = engine->store_.get();
    cache.metrics = &engine->metrics_;
    cache.warn = [raw = engine.get()](std::string text) { raw->Log(LogLevel::kWarning, std::move(text)); };
    engine->programs_.push_back(std::make_unique<compiler::ProgramCache>(std::move(cache)));
    for (Device* device : backend->devices()) {
      engine->device_list_.push_back(device);
      DeviceState& state = engine->devices_.emplace_back();
      state.device = device;
      state.backend = backend.get();
      state.programs = engine->programs_.back().get();
      state.policy.Configure(options);
    }
  }
  if (engine->device_list_.empty()) return UserError("a context needs a backend with at least one device");
  return engine;
}

Engine::~Engine() {
  // Launches hold what they need, but the backends must not go while they run.
  for (DeviceState& state : devices_) {
    if (state.last_event) (void)state.last_event->Wait();
  }
  releases_->Close();
}

absl::Status Engine::Close() {
  absl::Status status = Wait();
  {
    Lock lock(*this);
    closed_ = true;
  }
  if (store_ != nullptr) store_->Drain();
  FlushLog();
  return status;
}

Engine::DeviceState* Engine::StateOf(const Device* device) {
  for (DeviceState& state : devices_) {
    if (state.device == device) return &state;
  }
  return nullptr;
}

absl::StatusOr<Engine::DeviceState*> Engine::CheckDevice(const Device* device) {
  if (closed_) return UserErrorOf(absl::StatusCode::kFailedPrecondition, "the context has been closed");
  DeviceState* state = device == nullptr ? &devices_.front() : StateOf(device);
  if (state == nullptr) return UserError("the device ", device->name, " does not belong to this context");
  return state;
}

absl::Status Engine::CheckTensor(const Tensor* tensor, std::string_view what) const {
  if (tensor == nullptr) return UserError(what, " is null");
  if (tensor->engine_.get() != this) return UserError(what, " belongs to another context");
  if (tensor->expired_) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, what,
                       " is a scope's temporary that a barrier left behind; keep it before weft_sync");
  }
  return absl::OkStatus();
}

ir::Value Engine::NewLeaf(const ir::Type& type, Ref<Data> data, bool needs_gradient) {
  Ref<const ir::Node> node = ir::Node::Create(ops::kOp_parameter, {}, {}, {type});
  if (needs_gradient) node->set_needs_gradient();
  node->set_payload(std::move(data));
  return {std::move(node), 0};
}

Ref<Tensor> Engine::NewTensor(DeviceState& state, ir::Value value, ir::Location location) {
  Tensor* tensor = new Tensor();
  tensor->engine_ = Ref<Engine>::Share(this);
  tensor->device_ = state.device;
  tensor->type_ = value.type();
  tensor->value_ = std::move(value);
  tensor->location_ = location;
  tensor->previous_ = state.last;
  (state.last != nullptr ? state.last->next_ : state.first) = tensor;
  state.last = tensor;
  return Ref<Tensor>(tensor);
}

absl::StatusOr<Ref<Tensor>> Engine::NewBufferTensor(Device* device, Ref<Buffer> buffer, ir::Location location) {
  Ref<Tensor> tensor;
  Lock lock(*this);
  WEFT_ASSIGN_OR_RETURN(DeviceState * state, CheckDevice(device));
  const ir::Type type = ir::Type::Tensor(buffer->dtype(), buffer->dims());
  tensor = NewTensor(*state, NewLeaf(type, MakeRef<Data>(std::move(buffer))), location);
  return tensor;
}

namespace {

absl::Status CheckShape(std::string_view what, DType dtype, std::span<const int64_t> dims) {
  if (!IsComputable(dtype)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, what, ": dtype ",
                       IsKnown(static_cast<uint32_t>(dtype)) ? NameOf(dtype) : std::string_view("unknown"),
                       " cannot be computed with; convert on the host");
  }
  if (dims.size() > kMaxRank) return UserError(what, ": rank ", dims.size(), "; at most ", kMaxRank, " is supported");
  const std::optional<int64_t> count = CheckedCount(dims);
  if (!count.has_value() || *count > (int64_t{1} << 59)) {
    return UserError(what, ": shape ", DimsToString(dims), " has a negative or too large dimension");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Ref<Tensor>> Engine::FromHost(Device* device, DType dtype, std::span<const int64_t> dims,
                                             std::span<const std::byte> bytes, ir::Location location) {
  WEFT_RETURN_IF_ERROR(CheckShape("tensor from host memory", dtype, dims));
  const int64_t wanted = CountOf(dims) * BytesOf(dtype);
  if (static_cast<int64_t>(bytes.size()) != wanted) {
    return UserError("tensor from host memory: ", NameOf(dtype), DimsToString(dims), " has ", wanted, " bytes, ",
                     bytes.size(), " were given");
  }
  Backend* backend = nullptr;
  {
    Lock lock(*this);
    WEFT_ASSIGN_OR_RETURN(DeviceState * state, CheckDevice(device));
    backend = state->backend;
    device = state->device;
  }
  WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, backend->ToDevice(device, dtype, dims, bytes));
  metrics_.Add(Counter::kBytesToDevice, wanted);
  return NewBufferTensor(device, std::move(buffer), location);
}

absl::StatusOr<Ref<Tensor>> Engine::Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                          std::function<void()> release, ir::Location location) {
  Backend* backend = nullptr;
  {
    absl::Status status = CheckShape("adopted tensor", dtype, dims);
    if (status.ok()) {
      Lock lock(*this);
      absl::StatusOr<DeviceState*> state = CheckDevice(device);
      status = state.status();
      if (state.ok()) {
        backend = (*state)->backend;
        device = (*state)->device;
      }
    }
    if (!status.ok()) {
      if (release) release();
      return status;
    }
  }
  auto unlocked = [releases = releases_, release = std::move(release)]() mutable {
    if (!release) return;
    releases->Add(std::move(release));
    if (t_locked == nullptr && !OnLibraryThread()) releases->Run();
  };
  WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, backend->Adopt(device, dtype, dims, data, std::move(unlocked)));
  // The memory is somebody else's: held for good, so that no launch writes into it.
  buffer->Hold();
  return NewBufferTensor(device, std::move(buffer), location);
}

absl::StatusOr<Ref<Tensor>> Engine::NewScalar(Device* device, const HostTensor& value, ir::Location location) {
  Ref<Tensor> tensor;
  Lock lock(*this);
  WEFT_ASSIGN_OR_RETURN(DeviceState * state, CheckDevice(device));
  const auto words = WordsOf(value);
  tensor = NewTensor(*state, NewLeaf(ir::Type::Scalar(value.dtype()), MakeRef<Data>(std::span<const uint32_t>(words))),
                     location);
  return tensor;
}

absl::StatusOr<Ref<Tensor>> Engine::Scalar(Device* device, DType dtype, double value, ir::Location location) {
  WEFT_RETURN_IF_ERROR(CheckShape("scalar", dtype, {}));
  HostTensor host(dtype, {});
  host.SetDouble(0, value);
  return NewScalar(device, host, location);
}

absl::StatusOr<Ref<Tensor>> Engine::ScalarInt(Device* device, DType dtype, int64_t value, ir::Location location) {
  WEFT_RETURN_IF_ERROR(CheckShape("scalar", dtype, {}));
  HostTensor host(dtype, {});
  host.SetInt(0, value);
  return NewScalar(device, host, location);
}

absl::StatusOr<Ref<Tensor>> Engine::Alias(Tensor* tensor) {
  Ref<Tensor> alias;
  Lock lock(*this);
  WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "the tensor"));
  alias = NewTensor(*StateOf(tensor->device_), tensor->value_, tensor->location_);
  alias->requires_grad_ = tensor->requires_grad_;
  alias->set_aside_ = tensor->set_aside_;
  return alias;
}

void Engine::AdoptByScope(Tensor* tensor) {
  Lock lock(*this);
  tensor->scoped_ = true;
}

void Engine::Keep(Tensor* tensor) {
  Lock lock(*this);
  tensor->scoped_ = false;
}

bool Engine::requires_grad(const Tensor* tensor) const {
  std::lock_guard lock(mutex_);
  return tensor->requires_grad_;
}

GeneratorState Engine::generator() const {
  std::lock_guard lock(mutex_);
  return generator_;
}

void Engine::set_generator(GeneratorState state) {
  std::lock_guard lock(mutex_);
  generator_ = state;
}

absl::StatusOr<std::string> Engine::GraphText(std::span<Tensor* const> tensors) {
  Lock lock(*this);
  outputs_.clear();
  for (Tensor* tensor : tensors) {
    WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "the tensor"));
    outputs_.push_back(tensor->value_);
  }
  absl::Status status = BuildTrace(outputs_);
  outputs_.clear();
  WEFT_RETURN_IF_ERROR(status);
  return ir::Print(compiler::BuildModule(trace_));
}

std::string Engine::Report(bool json) const {
  std::string text = json ? absl::StrCat("{\"counters\": ", metrics_.Json(), ", \"memory\": [") : metrics_.Report();
  bool first = true;
  for (const DeviceState& state : devices_) {
    const MemoryStats stats = state.backend->memory_stats(state.device);
    if (json) {
      absl::StrAppend(&text, first ? "" : ", ", "{\"device\": ", JsonText(state.device->name),
                      ", \"bytes_in_use\": ", stats.bytes_in_use, ", \"peak_bytes\": ", stats.peak_bytes,
                      ", \"bytes_limit\": ", stats.bytes_limit, "}");
    } else {
      absl::StrAppend(&text, "memory ", state.device->name, ": ", stats.bytes_in_use, " bytes in use, peak ",
                      stats.peak_bytes, "\n");
    }
    first = false;
  }
  return json ? text + "]}" : text;
}

void Engine::Log(LogLevel level, std::string text) {
  std::lock_guard lock(log_mutex_);
  if (level >= LogLevel::kWarning) {
    metrics_.Add(Counter::kWarnings);
    warnings_.push_back(text);
    if (warnings_.size() > kWarningsKept) warnings_.pop_front();
  }
  if (!log_) return;
  log_queue_.emplace_back(level, std::move(text));
  log_waiting_.store(true, std::memory_order_release);
}

void Engine::FlushLog() {
  std::vector<std::pair<LogLevel, std::string>> messages;
  {
    std::lock_guard lock(log_mutex_);
    messages.swap(log_queue_);
    log_waiting_.store(false, std::memory_order_relaxed);
  }
  for (const auto& [level, text] : messages) log_(level, text);
}

std::vector<std::string> Engine::LastWarnings() const {
  std::lock_guard lock(log_mutex_);
  return {warnings_.begin(), warnings_.end()};
}

}  // namespace weft::lazy
