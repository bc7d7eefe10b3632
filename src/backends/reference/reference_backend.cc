// A launch is one run of the interpreter; see the header for where it runs.
#include "src/backends/reference/reference_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "absl/cleanup/cleanup.h"
#include "src/backends/reference/interpreter.h"
#include "src/ir/op_def.h"
#include "src/ops/collective/processes.h"
#include "src/ops/custom/custom_call.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/device_row.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/memory_budget.h"
#include "src/runtime/narrow.h"
#include "src/runtime/parts.h"
#include "src/runtime/taken_over.h"
#include "src/runtime/work_queue.h"

namespace weft {
namespace {

// Memory of buffers. Thread-safe.
class Usage {
 public:
  explicit Usage(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}
  // Null if there is none; Free gives it back.
  void* Allocate(size_t bytes) {
    void* const memory = budget_->Allocate(bytes, 64);
    const int64_t now = budget_->used();
    int64_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
    return memory;
  }
  void Free(void* memory, size_t bytes) { budget_->Free(memory, bytes); }
  const MemoryBudget& budget() const { return *budget_; }
  int64_t peak() const { return peak_.load(); }

 private:
  const std::shared_ptr<MemoryBudget> budget_;
  std::atomic<int64_t> peak_{0};
};

class HostBuffer final : public Buffer {
 public:
  // `release` may be empty: then the memory is of `usage`; otherwise it is somebody else's until it runs.
  HostBuffer(Device* device, DType dtype, Dims dims, void* data, std::function<void()> release,
             std::shared_ptr<Usage> usage, Ref<Event> ready = Event::Done())
      : Buffer(device, dtype, std::move(dims), std::move(ready)),
        data_(data),
        release_(std::move(release)),
        usage_(std::move(usage)) {}

  void* host_data() override { return data_; }

 private:
  ~HostBuffer() override {
    if (release_ != nullptr) {
      release_();
      return;
    }
    usage_->Free(data_, static_cast<size_t>(bytes()));
  }

  void* data_;
  std::function<void()> release_;
  std::shared_ptr<Usage> usage_;
};

absl::StatusOr<Ref<Buffer>> NewBuffer(Device* device, DType dtype, Dims dims, const std::shared_ptr<Usage>& usage,
                                      Ref<Event> ready = Event::Done()) {
  const auto bytes = static_cast<size_t>(CountOf(dims) * BytesOf(dtype));
  void* data = usage->Allocate(bytes);
  if (data == nullptr) {
    return usage->budget().Shortage(
        absl::StrCat(NameOf(dtype), DimsToString(dims), " of ", bytes, " bytes on the platform 'reference'"), bytes);
  }
  return Ref<Buffer>(new HostBuffer(device, dtype, std::move(dims), data, nullptr, usage, std::move(ready)));
}

void Fill(Buffer& buffer, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(buffer.host_data(), bytes.data(), bytes.size());
}

constexpr double kMost = 0x1p62;

// Returns the peak of bytes that the interpreter holds: its copies of the arguments, and every value whole until its
// last user has run.
int64_t PeakBytes(const ir::Function& function) {
  HashMap<const ir::Node*, size_t> last_user;
  for (size_t i = 0; i < function.nodes().size(); ++i) {
    for (const ir::Value& operand : function.nodes()[i]->operands()) {
      if (operand) last_user[operand.node.get()] = i;
    }
  }
  const auto bytes = [](const ir::Node& node) {
    double sum = 0;
    for (const ir::Type& type : node.results()) sum += static_cast<double>(type.bytes());
    return sum;
  };
  double live = 0, peak = 0;
  for (const ir::Value& parameter : function.parameters()) live += 2 * bytes(*parameter.node);
  for (size_t i = 0; i < function.nodes().size(); ++i) {
    const ir::Node& node = *function.nodes()[i];
    if (!node.op().parameter) live += bytes(node);
    peak = std::max(peak, live);
    HashSet<const ir::Node*> done;
    for (const ir::Value& operand : node.operands()) {
      if (!operand || last_user[operand.node.get()] != i || !done.insert(operand.node.get()).second) continue;
      live -= bytes(*operand.node);
    }
  }
  return static_cast<int64_t>(std::min(peak, kMost));
}

int64_t WithResults(const ir::Function& function, int64_t temporary_bytes) {
  auto sum = static_cast<double>(temporary_bytes);
  for (const ir::Value& result : function.results()) sum += static_cast<double>(result.type().bytes());
  return static_cast<int64_t>(std::min(sum, kMost));
}

// Launches of one backend share this; they may outlive the backend.
struct Shared {
  const std::shared_ptr<ops::CustomFunctions> custom;
  const BackendServices services;
  const std::shared_ptr<Usage> usage;
  WorkQueue queue;
};

// A program, and one run of it. Immutable; held by launches that wait.
class Interpreted {
 public:
  Interpreted(Ref<const ir::Function> main, uint32_t words) : main_(std::move(main)), words_(words) {}
  const ir::Function& main() const { return *main_; }

  absl::StatusOr<std::vector<HostTensor>> Run(const DeviceArguments& given,
                                              const std::shared_ptr<ops::CustomFunctions>& custom,
                                              const BackendServices& services) const {
    const WholeFloatScope floats;
    const int64_t start = MonotonicNow();
    PartScope part = PartScope::Inside(*services.metrics, Part::kRunning, start);
    const absl::Cleanup count = [&] {
      const int64_t now = MonotonicNow();
      part.End(now);
      services.metrics->Add(Sample::kRun, now - start, now);
    };
    const SpanScope span(*services.trace, kRunSpan);
    const reference::CancelScope cancel(given.cancel);
    try {
      WEFT_ASSIGN_OR_RETURN(std::vector<HostTensor> arguments, Arguments(given));
      if (custom == nullptr) return reference::Interpret(*main_, arguments);
      const reference::CustomScope calls(custom);
      return reference::Interpret(*main_, arguments);
    } catch (const std::bad_alloc&) {
      WEFT_RETURN_IF_ERROR(reference::CancelScope::Stopped());
      return NoLargeMemory("a launch on the platform 'reference', which keeps every intermediate value whole");
    }
  }

 private:
  absl::StatusOr<std::vector<HostTensor>> Arguments(const DeviceArguments& given) const {
    if (given.words.size() < words_) {
      return InternalError("the argument block has ", given.words.size(), " words, the program reads ", words_);
    }
    std::vector<HostTensor> arguments;
    size_t next = 0;
    for (size_t i = 0; i < main_->parameters().size(); ++i) {
      const ir::Type& type = main_->parameters()[i].type();
      const ir::ParameterInfo& info = main_->parameter_infos()[i];
      HostTensor value(type.dtype, type.dims);
      if (info.role == ir::ParameterInfo::Role::kWords) {
        // One word an element (its low bytes), two for 64 bits, low half first: a little-endian copy either
        // way.
        const size_t size = BytesOf(type.dtype), step = size == 8 ? 2 : 1;
        if (info.word + step * value.count() > given.words.size()) return InternalError("argument words out of range");
        for (int64_t k = 0; k < value.count(); ++k) {
          std::memcpy(value.mutable_bytes().data() + k * size, &given.words[info.word + step * k], size);
        }
      } else {
        if (next == given.buffers.size()) return InternalError("too few argument buffers: ", next);
        Buffer& buffer = *given.buffers[next++];
        if (StorageOf(buffer.dtype()) != type.dtype || buffer.dims() != type.dims) {
          return InternalError("argument ", i, " has type ", NameOf(buffer.dtype()), DimsToString(buffer.dims()),
                               ", the program expects ", ToString(type));
        }
        WEFT_RETURN_IF_ERROR(buffer.ready().Wait());
        if (buffer.bytes() != 0) std::memcpy(value.mutable_bytes().data(), buffer.host_data(), buffer.bytes());
      }
      arguments.push_back(std::move(value));
    }
    return arguments;
  }

  const Ref<const ir::Function> main_;
  const uint32_t words_;
};

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(Ref<const ir::Function> main, uint32_t words, Device* device, std::shared_ptr<Shared> shared)
      : program_(std::make_shared<const Interpreted>(std::move(main), words)),
        device_(device),
        shared_(std::move(shared)),
        calls_(ops::CallsCustom(program_->main())),
        temporary_bytes_(PeakBytes(program_->main())),
        bytes_(WithResults(program_->main(), temporary_bytes_)) {}

  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override {
    if (devices.size() != 1) {
      return InternalError("the reference backend runs a program once for all its devices, not ", devices.size(),
                           " times");
    }
    WEFT_RETURN_IF_ERROR(shared_->queue.CheckProcess());
    const MemoryBudget& budget = shared_->usage->budget();
    if (budget.limit() > 0 && bytes_ > budget.limit() - budget.used()) {
      return budget.Shortage(absl::StrCat(bytes_, " bytes of a launch's values"), static_cast<size_t>(bytes_));
    }
    const bool known = std::ranges::all_of(
        devices[0].buffers, [](const Ref<Buffer>& b) { return b->ready().done() && b->ready().status().ok(); });
    return known && !calls_ ? Now(devices[0]) : Later(devices[0]);
  }

  absl::StatusOr<std::string> Serialize() const override {
    return absl::UnimplementedError("the reference backend interprets programs and has no code to store");
  }

  ExecutableStats stats() const override {
    ExecutableStats stats;
    stats.kernels = static_cast<int64_t>(program_->main().nodes().size() - program_->main().parameters().size());
    stats.temporary_bytes = temporary_bytes_;
    return stats;
  }

 private:
  absl::StatusOr<std::vector<DeviceResults>> Now(const DeviceArguments& given) {
    absl::StatusOr<std::vector<HostTensor>> values = program_->Run(given, nullptr, shared_->services);
    // The launch has begun, as on other devices: its results have this outcome. Memory may be there the next time.
    const absl::Status outcome = Intact(values.status());
    if (absl::IsResourceExhausted(outcome)) return outcome;
    WEFT_ASSIGN_OR_RETURN(std::vector<DeviceResults> results, Results(given.device, Event::Done(outcome)));
    for (size_t i = 0; values.ok() && i < values->size(); ++i) Fill(*results[0].buffers[i], (*values)[i].bytes());
    return results;
  }

  // Runs on the queue's thread, for which nobody waits under a lock: a caller's function may take as long as it likes.
  absl::StatusOr<std::vector<DeviceResults>> Later(const DeviceArguments& given) {
    WEFT_RETURN_IF_ERROR(shared_->queue.NeedThread());
    const Ref<Event> done = MakeRef<Event>();
    WEFT_ASSIGN_OR_RETURN(std::vector<DeviceResults> results, Results(given.device, done));
    shared_->queue.Submit(
        [program = program_, custom = shared_->custom, services = shared_->services, done, results = results[0].buffers,
         cancel = given.cancel, buffers = std::vector<Ref<Buffer>>(given.buffers.begin(), given.buffers.end()),
         words = std::vector<uint32_t>(given.words.begin(), given.words.end())] {
          const absl::StatusOr<std::vector<HostTensor>> values =
              program->Run({.buffers = buffers, .words = words, .donated = {}, .cancel = cancel}, custom, services);
          for (size_t i = 0; values.ok() && i < values->size(); ++i) Fill(*results[i], (*values)[i].bytes());
          done->Complete(Intact(values.status()));
        },
        WorkQueue::By::kQueue);
    return results;
  }

  absl::StatusOr<std::vector<DeviceResults>> Results(Device* device, const Ref<Event>& done) const {
    if (device == nullptr) device = device_;
    std::vector<DeviceResults> results(1);
    results[0].done = done;
    for (const ir::Value& result : program_->main().results()) {
      WEFT_ASSIGN_OR_RETURN(results[0].buffers.emplace_back(),
                            NewBuffer(device, result.dtype(), result.type().dims, shared_->usage, done));
    }
    return results;
  }

  const std::shared_ptr<const Interpreted> program_;
  Device* const device_;
  const std::shared_ptr<Shared> shared_;
  const bool calls_;  // custom operations
  const int64_t temporary_bytes_;
  const int64_t bytes_;  // with the results
};

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(std::shared_ptr<ops::CustomFunctions> custom, const BackendServices& services, int64_t devices)
      : devices_("reference", "interpreter", devices, this),
        shared_(new Shared{.custom = std::move(custom),
                           .services = services,
                           .usage = std::make_shared<Usage>(services.budget),
                           .queue = {}}) {}

  ~ReferenceBackend() override {
    if (shared_->queue.CheckProcess().ok()) {
      shared_->queue.Drain();
    } else {
      // The queue's thread stayed in the fork's parent: nobody to wait for, nobody to join.
      static_cast<void>(new std::shared_ptr<Shared>(shared_));
    }
  }

  void Close() override { shared_->queue.Close(); }

  std::string_view platform() const override { return "reference"; }
  std::span<Device* const> devices() const override { return devices_.all(); }
  bool shares_memory() const override { return true; }
  Target target(const CompileOptions&) const override { return {"reference", "interpreter 1"}; }
  bool Claims(const ir::Node&) const override { return true; }
  bool Serializes() const override { return false; }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module, const CompileOptions&) override {
    if (module.functions.empty()) return InternalError("a module without functions");
    WEFT_RETURN_IF_ERROR(ops::RefuseOthers(module, "reference"));
    if (shared_->custom != nullptr) {
      WEFT_RETURN_IF_ERROR(ops::CheckCustomCalls(*module.functions.front(), *shared_->custom));
    }
    return std::make_unique<ReferenceExecutable>(module.functions.front(), module.argument_words, devices_.first(),
                                                 shared_);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view) override {
    return absl::UnimplementedError("the reference backend interprets programs and has no code to load");
  }

  absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes) override {
    WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, NewBuffer(device, dtype, Dims(dims.begin(), dims.end()), shared_->usage));
    Fill(*buffer, bytes);
    return buffer;
  }
  absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release) override {
    if (release == nullptr) release = [] {};
    return Ref<Buffer>(
        new HostBuffer(device, dtype, Dims(dims.begin(), dims.end()), data, std::move(release), shared_->usage));
  }
  absl::Status FromDevice(Buffer& buffer, int64_t offset, std::span<std::byte> destination) override {
    WEFT_RETURN_IF_ERROR(buffer.ready().Wait());
    const int64_t size = static_cast<int64_t>(destination.size());
    if (offset < 0 || size > buffer.bytes() - offset) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "bytes ", offset, " to ", offset + size,
                         " asked for of a buffer of ", buffer.bytes());
    }
    if (size != 0) std::memcpy(destination.data(), static_cast<std::byte*>(buffer.host_data()) + offset, size);
    return absl::OkStatus();
  }
  MemoryStats memory_stats(Device*) const override {
    const Usage& usage = *shared_->usage;
    return {usage.budget().used(), usage.peak(), usage.budget().limit()};
  }
  int64_t bytes_available(Device*) const override {
    const int64_t free = ReadMachineMemory().available;
    const MemoryBudget& budget = shared_->usage->budget();
    if (budget.limit() == 0) return free;
    const int64_t left = std::max<int64_t>(budget.limit() - budget.used(), 0);
    return free < 0 ? left : std::min(free, left);
  }

 private:
  const DeviceRow devices_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<Backend> NewReferenceBackend(std::shared_ptr<ops::CustomFunctions> custom,
                                             const BackendServices& services, int64_t devices) {
  return std::make_unique<ReferenceBackend>(std::move(custom), services, devices);
}

}  // namespace weft
