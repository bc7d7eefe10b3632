// Every call runs to completion before it returns; events are already done.
#include "src/backends/reference/reference_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "src/backends/reference/interpreter.h"
#include "src/ir/op_def.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/narrow.h"

namespace weft {
namespace {

struct Usage {
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> peak{0};
};

class HostBuffer final : public Buffer {
 public:
  // `release` may be empty; otherwise the memory is somebody else's until it runs.
  HostBuffer(Device* device, DType dtype, Dims dims, void* data, std::function<void()> release,
             std::shared_ptr<Usage> usage, absl::Status outcome = absl::OkStatus())
      : Buffer(device, dtype, std::move(dims), Event::Done(std::move(outcome))),
        data_(data),
        release_(std::move(release)),
        usage_(std::move(usage)) {
    if (release_ != nullptr) return;
    const int64_t now = usage_->bytes.fetch_add(bytes()) + bytes();
    int64_t peak = usage_->peak.load();
    while (now > peak && !usage_->peak.compare_exchange_weak(peak, now)) {
    }
  }

  void* host_data() override { return data_; }

 private:
  ~HostBuffer() override {
    if (release_ != nullptr) {
      release_();
      return;
    }
    usage_->bytes.fetch_sub(bytes());
    FreeLarge(data_, static_cast<size_t>(bytes()));
  }

  void* data_;
  std::function<void()> release_;
  std::shared_ptr<Usage> usage_;
};

absl::StatusOr<Ref<Buffer>> NewBuffer(Device* device, DType dtype, Dims dims, std::span<const std::byte> bytes,
                                      const std::shared_ptr<Usage>& usage, absl::Status outcome = absl::OkStatus()) {
  void* data = AllocateLarge(bytes.size());
  if (data == nullptr) {
    return NoLargeMemory(
        absl::StrCat(NameOf(dtype), DimsToString(dims), " of ", bytes.size(), " bytes on the platform 'reference'"));
  }
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  return Ref<Buffer>(new HostBuffer(device, dtype, std::move(dims), data, nullptr, usage, std::move(outcome)));
}

// What the interpreter holds at most: its copies of the arguments, and every value whole until its last user has run.
int64_t PeakBytes(const ir::Function& function) {
  constexpr double kMost = 0x1p62;
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

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(Ref<const ir::Function> main, uint32_t words, Device* device, std::shared_ptr<Usage> usage)
      : main_(std::move(main)), words_(words), device_(device), usage_(std::move(usage)) {
    temporary_bytes_ = PeakBytes(*main_);
  }

  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override {
    if (devices.size() != 1) return InternalError("the reference backend has one device, ", devices.size(), " given");
    std::vector<HostTensor> values;
    absl::Status outcome;
    const WholeFloatScope floats;
    try {
      WEFT_ASSIGN_OR_RETURN(std::vector<HostTensor> arguments, Arguments(devices[0]));
      const reference::CancelScope cancel(devices[0].cancel);
      absl::StatusOr<std::vector<HostTensor>> computed = reference::Interpret(*main_, arguments);
      if (computed.ok()) {
        values = *std::move(computed);
      } else if (outcome = computed.status(); absl::IsCancelled(outcome) || absl::IsDeadlineExceeded(outcome)) {
        // A launch that began: its results have no values, and nobody starts it again.
        for (const ir::Value& result : main_->results()) values.emplace_back(result.dtype(), result.dims());
      } else {
        return outcome;
      }
    } catch (const std::bad_alloc&) {
      return NoLargeMemory("a launch on the platform 'reference', which keeps every intermediate value whole");
    }
    std::vector<DeviceResults> results(1);
    for (const HostTensor& value : values) {
      WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer,
                            NewBuffer(device_, value.dtype(), value.dims(), value.bytes(), usage_, outcome));
      results[0].buffers.push_back(std::move(buffer));
    }
    results[0].done = Event::Done(std::move(outcome));
    return results;
  }

  absl::StatusOr<std::string> Serialize() const override {
    return absl::UnimplementedError("the reference backend interprets programs and has no code to store");
  }

  ExecutableStats stats() const override {
    ExecutableStats stats;
    stats.kernels = static_cast<int64_t>(main_->nodes().size() - main_->parameters().size());
    stats.temporary_bytes = temporary_bytes_;
    return stats;
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

  Ref<const ir::Function> main_;
  uint32_t words_;
  Device* device_;
  std::shared_ptr<Usage> usage_;
  int64_t temporary_bytes_ = 0;
};

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend() {
    device_.name = "reference:0";
    device_.kind = "interpreter";
    device_.backend = this;
  }

  std::string_view platform() const override { return "reference"; }
  std::span<Device* const> devices() const override { return {&device_pointer_, 1}; }
  Target target(const CompileOptions&) const override { return {"reference", "interpreter 1"}; }
  bool Claims(const ir::Node&) const override { return true; }
  bool Serializes() const override { return false; }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module, const CompileOptions&) override {
    if (module.functions.empty()) return InternalError("a module without functions");
    return std::make_unique<ReferenceExecutable>(module.functions.front(), module.argument_words, &device_, usage_);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view) override {
    return absl::UnimplementedError("the reference backend interprets programs and has no code to load");
  }

  absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes) override {
    return NewBuffer(device, dtype, Dims(dims.begin(), dims.end()), bytes, usage_);
  }
  absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release) override {
    if (release == nullptr) release = [] {};
    return Ref<Buffer>(new HostBuffer(device, dtype, Dims(dims.begin(), dims.end()), data, std::move(release), usage_));
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
  MemoryStats memory_stats(Device*) const override { return {usage_->bytes.load(), usage_->peak.load(), 0}; }
  int64_t bytes_available(Device*) const override { return ReadMachineMemory().available; }

 private:
  Device device_;
  Device* device_pointer_ = &device_;
  // Shared with buffers, which may outlive the backend.
  std::shared_ptr<Usage> usage_ = std::make_shared<Usage>();
};

}  // namespace

std::unique_ptr<Backend> NewReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace weft
