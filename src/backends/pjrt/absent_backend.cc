// See absent_backend.h.
#include "src/backends/pjrt/absent_backend.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "src/backends/open_results.h"
#include "src/backends/pjrt/executable_stats.h"
#include "src/backends/pjrt/find.h"
#include "src/backends/pjrt/loaded.h"
#include "src/backends/pjrt/program.h"
#include "src/backends/pjrt/shardings.h"
#include "src/backends/pjrt/topology.h"
#include "src/passes/shardings.h"

namespace weft::pjrt {
namespace {

Ref<Event> Done() {
  Ref<Event> done = MakeRef<Event>();
  done->Complete(absl::OkStatus());
  return done;
}

class AbsentBuffer final : public Buffer {
 public:
  AbsentBuffer(Device* device, DType dtype, Dims dims, Ref<Event> ready)
      : Buffer(device, dtype, std::move(dims), std::move(ready), /*has_bytes=*/false) {}
  void* host_data() override { return nullptr; }
};

class AbsentExecutable final : public Executable, public LyingResults {
 public:
  AbsentExecutable(Device* first, Program program, std::string packed)
      : first_(first), program_(std::move(program)), packed_(std::move(packed)) {}

  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override {
    std::vector<DeviceResults> results;
    for (const DeviceArguments& given : devices) {
      DeviceResults& one = results.emplace_back();
      one.done = Done();
      for (const ir::Type& type : program_.results) {
        one.buffers.push_back(Ref<Buffer>(
            new AbsentBuffer(given.device != nullptr ? given.device : first_, type.dtype, type.dims, one.done)));
      }
    }
    return results;
  }
  absl::StatusOr<std::string> Serialize() const override { return packed_; }
  ExecutableStats stats() const override { return program_.stats; }
  const std::vector<ir::Sharding>& result_shardings() const override { return program_.lying; }

 private:
  Device* const first_;
  const Program program_;
  const std::string packed_;
};

class AbsentBackend final : public Backend, public OpenResults {
 public:
  AbsentBackend(const Plugin& plugin, std::unique_ptr<Topology> topology, const Options& options)
      : plugin_(plugin), topology_(std::move(topology)), options_(options) {
    devices_.resize(topology_->kinds().size());
    for (size_t i = 0; i < devices_.size(); ++i) {
      Device& device = devices_[i];
      device.type = kDlExtDev;
      device.id = static_cast<int32_t>(i);
      device.name = absl::StrCat(options_.platform, ":", i);
      device.kind = topology_->kinds()[i];
      device.backend = this;
      pointers_.push_back(&device);
    }
  }

  std::string_view platform() const override { return options_.platform; }
  std::span<Device* const> devices() const override { return pointers_; }
  Target target(const CompileOptions&) const override {
    return TargetOf(plugin_, topology_->fingerprint(), options_.matmul_precision);
  }
  bool Claims(const ir::Node& node) const override { return StaysWhole(node); }
  bool HasSource() const override { return true; }
  bool TakesOpenResults() const override { return TellsShardings(plugin_); }
  absl::StatusOr<std::string> Source(const ir::Module& module) const override {
    Program program;
    return ToText(module, &program, {options_.matmul_precision, topology_->platform()});
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module,
                                                      const CompileOptions& options) override {
    if (options.progress != nullptr) options.progress->phase = kCompiling;
    Program program;
    WEFT_ASSIGN_OR_RETURN(std::string text,
                          ToText(module, &program, {options_.matmul_precision, topology_->platform()}));
    const api::Program code = AsArgument(text);
    api::Compile compile{.topology = topology_->get(), .program = &code};
    const auto by = [&](std::string_view with) {
      compile.options = with.data();
      compile.options_size = with.size();
      return plugin_.Call(api::Function::kCompile, &compile);
    };
    const auto id_of = [&](uint32_t i) { return topology_->IdOf(i); };
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> assigned,
                          AssignedIds(program, options.assignment, devices_.size(), id_of));
    const absl::Status compiled = CompileFor(topology_->first_id(), alone_, assigned, by, &program);
    if (!compiled.ok()) return Refused(compiled, module, {options_.matmul_precision, topology_->platform()});
    if (program.device >= 0) alone_ = true;
    const absl::Cleanup destroy = [&] {
      plugin_.Destroy(api::Function::kExecutableDestroy, api::OfExecutable{.executable = compile.executable});
    };
    if (std::ranges::any_of(program.lying, passes::IsOpen)) {
      WEFT_ASSIGN_OR_RETURN(const bool all, AskShardings(plugin_, compile.executable, &program));
      if (!all) return Compile(WithoutOpenResults(module, program), options);
    }
    AddStats(plugin_, compile.executable, &program.stats);
    program.stats.kernels_compiled = 1;
    if (devices_.size() > 1) program.text = std::move(text);
    std::string packed;
    const absl::Status serialized = Serialize(plugin_, compile.executable, [&](std::string_view bytes) {
      packed = Pack(program, bytes);
      return absl::OkStatus();
    });
    WEFT_RETURN_IF_ERROR(serialized);
    return std::make_unique<AbsentExecutable>(pointers_[0], std::move(program), std::move(packed));
  }
  // The plugin's bytes are checked where the devices are.
  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized) override {
    Program program;
    WEFT_RETURN_IF_ERROR(Unpack(serialized, &program).status());
    return std::make_unique<AbsentExecutable>(pointers_[0], std::move(program), std::string(serialized));
  }

  absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte>) override {
    return Ref<Buffer>(new AbsentBuffer(device, dtype, Dims(dims.begin(), dims.end()), Done()));
  }
  absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void*,
                                    std::function<void()> release) override {
    if (release != nullptr) release();
    return ToDevice(device, dtype, dims, {});
  }
  CustomCallers custom_callers() const override { return CustomCallers::kNobody; }
  absl::Status FromDevice(Buffer& buffer, int64_t, std::span<std::byte> destination) override {
    if (!options_.reads_zeros) {
      return UserErrorOf(absl::StatusCode::kFailedPrecondition, "there is no device ", buffer.device()->name,
                         " here: this context compiles for the topology ", options_.topology,
                         ". The option on_read=zeros lets a program that reads go on, with zeros");
    }
    std::ranges::fill(destination, std::byte{0});
    return absl::OkStatus();
  }
  MemoryStats memory_stats(Device*) const override { return {}; }
  std::string attributes(Device* device) const override {
    return topology_->attributes()[static_cast<size_t>(device->id)];
  }
  int64_t bytes_available(Device*) const override { return -1; }

 private:
  const Plugin& plugin_;
  const std::unique_ptr<Topology> topology_;
  const Options options_;
  std::atomic<bool> alone_{false};  // Client::alone
  std::vector<Device> devices_;
  std::vector<Device*> pointers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewAbsentBackend(const Plugin& plugin, const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const CreateOptions create, CreateOptions::Parse(options.plugin_options));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Topology> topology,
                        Topology::Create(plugin, options.platform, options.topology, create));
  WEFT_RETURN_IF_ERROR(CheckPlatform(plugin, options.platform, topology->platform()));
  return std::make_unique<AbsentBackend>(plugin, std::move(topology), options);
}

}  // namespace weft::pjrt
