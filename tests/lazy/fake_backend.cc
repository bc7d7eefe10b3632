// The interpreter and its faults.
#include "tests/lazy/fake_backend.h"

#include <cstring>

#include "src/backends/reference/interpreter.h"
#include "src/ir/op_def.h"
#include "src/ir/text.h"
#include "src/ops/registry.h"
#include "src/runtime/taken_over.h"

namespace weft::testing {
namespace {

class FakeBuffer final : public Buffer {
 public:
  FakeBuffer(FakeBackend* backend, Device* device, HostTensor value, Ref<Event> ready)
      : Buffer(device, value.dtype(), value.dims(), std::move(ready)), backend_(backend), value(std::move(value)) {
    const int64_t now = backend_->live_bytes.fetch_add(bytes()) + bytes();
    int64_t peak = backend_->peak_bytes.load();
    while (now > peak && !backend_->peak_bytes.compare_exchange_weak(peak, now)) {
    }
  }
  void* host_data() override { return value.mutable_bytes().data(); }

  FakeBackend* backend_;
  HostTensor value;
  std::function<void()> release;

 protected:
  ~FakeBuffer() override {
    backend_->live_bytes.fetch_sub(bytes());
    if (release) release();
  }
};

absl::Status Interpret(const ir::Module& module, std::span<const HostTensor* const> buffers,
                       std::span<const uint32_t> words, std::span<HostTensor* const> results) {
  const ir::Function& main = module.main();
  std::vector<HostTensor> arguments;
  size_t next = 0;
  for (size_t i = 0; i < main.parameters().size(); ++i) {
    const ir::ParameterInfo& info = main.parameter_infos()[i];
    const ir::Type& type = main.parameters()[i].type();
    if (info.role == ir::ParameterInfo::Role::kBuffer) {
      arguments.push_back(*buffers[next++]);
      continue;
    }
    HostTensor& tensor = arguments.emplace_back(type.dtype, type.dims);
    const auto width = static_cast<size_t>(BytesOf(type.dtype));
    size_t word = info.word;
    for (size_t at = 0; at < tensor.bytes().size(); at += width) {
      std::memcpy(tensor.mutable_bytes().data() + at, &words[word], width);
      word += width == 8 ? 2 : 1;
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<HostTensor> values, reference::Interpret(main, arguments));
  for (size_t i = 0; i < results.size(); ++i) *results[i] = std::move(values[i]);
  return absl::OkStatus();
}

class FakeExecutable final : public Executable {
 public:
  FakeExecutable(FakeBackend* backend, ir::Module module) : backend_(backend), module_(std::move(module)) {}

  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override {
    if (backend_->fail_executes > 0) {
      --backend_->fail_executes;
      return absl::ResourceExhaustedError("fake: out of memory");
    }
    DeviceResults out;
    out.done = MakeRef<Event>();
    std::vector<Ref<Buffer>> in(devices[0].buffers.begin(), devices[0].buffers.end());
    std::vector<uint32_t> words(devices[0].words.begin(), devices[0].words.end());
    backend_->last_words = words;
    backend_->last_buffers = in.size();
    absl::Status fault;
    if (backend_->fail_runs > 0) {
      --backend_->fail_runs;
      fault = absl::InternalError("fake: a kernel failed");
    }
    if (!backend_->refuses_to_run.empty() && Has(backend_->refuses_to_run)) {
      fault = absl::Status(backend_->run_code, absl::StrCat("fake: no kernel for ", backend_->refuses_to_run));
    }
    if (!fault.ok() && !backend_->spoils) fault = Intact(std::move(fault));
    std::vector<uint8_t> donated(devices[0].donated.begin(), devices[0].donated.end());
    for (const ir::Value& result : module_.main().results()) {
      out.buffers.push_back(Ref<Buffer>(new FakeBuffer(backend_, backend_->devices()[0],
                                                       HostTensor(result.dtype(), result.dims()), out.done)));
    }
    backend_->Post([module = module_, fault, in = std::move(in), words = std::move(words), donated = std::move(donated),
                    results = out.buffers, done = out.done]() mutable {
      std::vector<const HostTensor*> buffers;
      for (const Ref<Buffer>& buffer : in) buffers.push_back(&static_cast<FakeBuffer*>(buffer.get())->value);
      std::vector<HostTensor*> to;
      for (const Ref<Buffer>& buffer : results) to.push_back(&static_cast<FakeBuffer*>(buffer.get())->value);
      absl::Status status;
      for (const Ref<Buffer>& buffer : in) status.Update(buffer->ready().status());
      const bool began = status.ok();
      status.Update(fault);
      if (status.ok()) status = Interpret(module, buffers, words, to);
      if (!began) status = Intact(std::move(status));
      const bool intact = status.GetPayload(kPayloadIntact).has_value();
      for (size_t i = 0; i < in.size(); ++i) {
        if (donated[i] == 0 || intact) continue;
        auto bytes = static_cast<FakeBuffer*>(in[i].get())->value.mutable_bytes();
        std::memset(bytes.data(), 0xCD, bytes.size());
      }
      in.clear();
      results.clear();
      done->Complete(std::move(status));
    });
    std::vector<DeviceResults> all;
    all.push_back(std::move(out));
    return all;
  }
  absl::StatusOr<std::string> Serialize() const override { return ir::Print(module_); }
  ExecutableStats stats() const override {
    ExecutableStats stats;
    for (const ir::Node* node : module_.main().nodes()) {
      const ir::Lowering lowering = node->op().lowering;
      if (node->op().name == "constant") continue;
      if (lowering != ir::Lowering::kStructural && lowering != ir::Lowering::kIndexMap) ++stats.kernels;
    }
    return stats;
  }

 private:
  bool Has(std::string_view op) const {
    for (const ir::Node* node : module_.main().nodes()) {
      if (node->op().c_name == op) return true;
    }
    return false;
  }

  FakeBackend* backend_;
  ir::Module module_;
};

}  // namespace

FakeBackend::FakeBackend(int device_count, bool asynchronous) {
  for (int i = 0; i < device_count; ++i) {
    auto device = std::make_unique<Device>();
    device->id = i;
    device->name = absl::StrCat("fake:", i);
    device->kind = "fake";
    device->backend = this;
    device_pointers_.push_back(device.get());
    devices_.push_back(std::move(device));
  }
  if (asynchronous) thread_ = std::thread([this] { Work(); });
}

FakeBackend::~FakeBackend() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void FakeBackend::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void FakeBackend::Post(std::function<void()> task) {
  if (!thread_.joinable()) return task();
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

absl::StatusOr<std::unique_ptr<Executable>> FakeBackend::Compile(const ir::Module& module, const CompileOptions&) {
  if (on_compile) on_compile();
  if (fail_compiles > 0) {
    --fail_compiles;
    return absl::InternalError("fake: the compiler failed");
  }
  if (!refuses.empty() && ir::Print(module).find(refuses) != std::string::npos) {
    return absl::InternalError(absl::StrCat("fake: no code for ", refuses));
  }
  ++compiles;
  last_module = module.main().nodes().size() < 1000 ? ir::Print(module) : "";
  return std::make_unique<FakeExecutable>(this, module);
}

absl::StatusOr<std::unique_ptr<Executable>> FakeBackend::Load(std::string_view serialized) {
  if (fail_loads > 0) {
    --fail_loads;
    return absl::DataLossError("fake: the program is damaged");
  }
  WEFT_ASSIGN_OR_RETURN(ir::Module module, ir::Parse(serialized, ops::FindOp));
  return std::make_unique<FakeExecutable>(this, std::move(module));
}

absl::StatusOr<Ref<Buffer>> FakeBackend::ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                                  std::span<const std::byte> bytes) {
  return Ref<Buffer>(
      new FakeBuffer(this, device, HostTensor(dtype, Dims(dims.begin(), dims.end()), bytes), Event::Done()));
}

absl::StatusOr<Ref<Buffer>> FakeBackend::Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                               std::function<void()> release) {
  const auto size = static_cast<size_t>(CountOf(dims) * BytesOf(dtype));
  auto* buffer = new FakeBuffer(
      this, device,
      HostTensor(dtype, Dims(dims.begin(), dims.end()), std::span(static_cast<const std::byte*>(data), size)),
      Event::Done());
  buffer->release = std::move(release);
  return Ref<Buffer>(buffer);
}

absl::Status FakeBackend::FromDevice(Buffer& buffer, int64_t offset, std::span<std::byte> destination) {
  WEFT_RETURN_IF_ERROR(buffer.ready().Wait());
  std::memcpy(destination.data(), static_cast<std::byte*>(buffer.host_data()) + offset, destination.size());
  return absl::OkStatus();
}

}  // namespace weft::testing
