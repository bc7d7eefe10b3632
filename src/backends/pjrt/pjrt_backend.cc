// See pjrt_backend.h.
#include "src/backends/pjrt/pjrt_backend.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"

#include "src/backends/pjrt/absent_backend.h"
#include "src/backends/pjrt/attributes.h"
#include "src/backends/pjrt/client.h"
#include "src/backends/pjrt/executable_stats.h"
#include "src/backends/pjrt/find.h"
#include "src/backends/pjrt/libtpu.h"
#include "src/backends/pjrt/loaded.h"
#include "src/backends/pjrt/program.h"
#include "src/backends/pjrt/topology.h"
#include "src/ir/op_def.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/narrow.h"

namespace weft::pjrt {
namespace {

constexpr int32_t kDlCuda = 2;

bool AnyGone(const Plugin& plugin, std::span<api::Buffer* const> taken) {
  return std::ranges::any_of(taken, [&](api::Buffer* buffer) {
    api::BufferIsDeleted gone{.buffer = buffer};
    return plugin.Call(api::Function::kBufferIsDeleted, &gone).ok() && gone.is_deleted;
  });
}

// Once more where there was no memory: launches may have ended meanwhile (the engine waits for those that have not). Not if the
// plugin has `taken` something over already.
template <typename Arguments>
absl::Status CallForMemory(const Plugin& plugin, api::Function function, Arguments* arguments,
                           std::span<api::Buffer* const> taken = {}) {
  absl::Status status = plugin.Call(function, arguments);
  if (!absl::IsResourceExhausted(status) || AnyGone(plugin, taken)) return status;
  return plugin.Call(function, arguments);
}

absl::StatusOr<Ref<Buffer>> Upload(const std::shared_ptr<Client>& client, Device* device, DType dtype,
                                   std::span<const int64_t> dims, const void* data, std::function<void()> release) {
  const api::ElementType type = ElementTypeOf(dtype);
  if (type == api::ElementType::kInvalid) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "tensors of ", NameOf(dtype), " cannot be on ", device->name);
  }
  Usage& usage = client->usage(device->id);
  const int64_t bytes = CountOf(dims) * BytesOf(dtype);
  if (const absl::Status counted = usage.Exchange(bytes); !counted.ok()) {
    return absl::Status(counted.code(),
                        absl::StrCat("no memory for a tensor of ", bytes, " bytes: ", counted.message()));
  }
  Share share(&usage, bytes);
  api::BufferFromHostBuffer copy{.client = client->get()};
  copy.data = data != nullptr ? data : static_cast<const void*>(&type);  // an empty tensor has no bytes, but an address
  copy.type = type;
  copy.dims = dims.data();
  copy.num_dims = dims.size();
  copy.semantics = release != nullptr ? api::HostBuffer::kImmutableZeroCopy : api::HostBuffer::kImmutableOnlyDuringCall;
  copy.device = client->devices()[static_cast<size_t>(device->id)];
  WEFT_RETURN_IF_ERROR(CallForMemory(client->plugin(), api::Function::kClientBufferFromHostBuffer, &copy));
  Ref<Event> ready = MakeRef<Event>();
  Ref<Buffer> buffer(
      new PjrtBuffer(client, device, dtype, Dims(dims.begin(), dims.end()), ready, std::move(share), copy.buffer));
  api::ReadyEvent is_ready{.buffer = copy.buffer};
  absl::Status asked = client->plugin().Call(api::Function::kBufferReadyEvent, &is_ready);
  if (asked.ok()) {
    client->Forward(device->id, is_ready.event, absl::StrCat("a copy to ", device->name), ready);
  } else {
    ready->Complete(asked);
  }
  if (release == nullptr) {
    WEFT_RETURN_IF_ERROR(client->plugin().Await(copy.done_with_host_buffer));
  } else {
    Ref<Event> done = MakeRef<Event>();
    done->OnDone([release = std::move(release)](const absl::Status&) { release(); });
    client->plugin().Forward(copy.done_with_host_buffer, "", done);
  }
  return buffer;
}

class PjrtExecutable final : public Executable {
 public:
  PjrtExecutable(std::shared_ptr<Client> client, std::span<Device* const> devices, Program program,
                 api::LoadedExecutable* loaded, bool compiled)
      : client_(std::move(client)),
        devices_(devices),
        program_(std::move(program)),
        loaded_(client_, program_, loaded) {
    if (!compiled) return;
    loaded_
        .WithExecutable([&](api::Executable* executable) {
          AddStats(client_->plugin(), executable, &program_.stats);
          return absl::OkStatus();
        })
        .IgnoreError();
    program_.stats.kernels_compiled = 1;
  }

  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override;

  absl::StatusOr<std::string> Serialize() const override {
    std::string packed;
    WEFT_RETURN_IF_ERROR(loaded_.WithExecutable([&](api::Executable* executable) {
      return pjrt::Serialize(client_->plugin(), executable, [&](std::string_view bytes) {
        packed = Pack(program_, bytes);
        return absl::OkStatus();
      });
    }));
    return packed;
  }
  ExecutableStats stats() const override { return program_.stats; }

  // The plugin counts the results that it will hand out: as many as we have room for.
  absl::Status Check() const {
    return loaded_.WithExecutable([&](api::Executable* executable) -> absl::Status {
      api::ExecutableNumber outputs{.executable = executable};
      WEFT_RETURN_IF_ERROR(client_->plugin().Call(api::Function::kExecutableNumOutputs, &outputs));
      if (outputs.number == static_cast<int64_t>(program_.results.size())) return absl::OkStatus();
      return InternalError("plugin '", client_->plugin().path(), "' made a program of ", outputs.number,
                           " results, not ", program_.results.size());
    });
  }

 private:
  // Where a plugin runs no program for all devices, it is launched once more by one for this device alone.
  absl::Status Launch(int device, std::span<api::Buffer* const> taken, api::Execute* execute);

  const std::shared_ptr<Client> client_;
  const std::span<Device* const> devices_;  // the backend's, which outlives its executables
  Program program_;
  Loaded loaded_;
};

absl::Status PjrtExecutable::Launch(int device, std::span<api::Buffer* const> taken, api::Execute* execute) {
  const auto launch = [&](const Loaded::Place& place) {
    execute->executable = place.executable;
    execute->execute_device = place.device;
    return CallForMemory(client_->plugin(), api::Function::kLoadedExecutableExecute, execute, taken);
  };
  WEFT_ASSIGN_OR_RETURN(const Loaded::Place place, loaded_.On(device));
  absl::Status status = launch(place);
  // One that has compiled for its first device whatever the options said refuses the device, or the arguments because of theirs.
  const bool refused = absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
  if (!refused || place.device == nullptr || AnyGone(client_->plugin(), taken)) return status;
  const absl::StatusOr<Loaded::Place> alone = loaded_.Alone(device);
  if (!alone.ok() || !launch(*alone).ok()) return status;
  client_->SetAlone();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceResults>> PjrtExecutable::Execute(std::span<const DeviceArguments> devices) {
  if (devices.size() != 1) return InternalError("a plugin's program runs on one device, ", devices.size(), " given");
  const DeviceArguments& given = devices[0];
  Device* const device = given.device != nullptr ? given.device : devices_[0];
  if (given.buffers.size() != program_.arguments.size() || given.words.size() < program_.words) {
    return InternalError("a plugin's program takes ", program_.arguments.size(), " buffers and ", program_.words,
                         " words; ", given.buffers.size(), " and ", given.words.size(), " given");
  }
  std::vector<api::Buffer*> arguments;
  std::vector<int64_t> kept;
  std::vector<api::Buffer*> taken;
  int64_t gone = 0, more = 0;
  for (size_t i = 0; i < given.buffers.size(); ++i) {
    const Buffer& buffer = *given.buffers[i];
    const ir::Type& type = program_.arguments[i];
    if (buffer.device() != device || StorageOf(buffer.dtype()) != type.dtype || buffer.dims() != type.dims) {
      return InternalError("argument ", i, " is ", NameOf(buffer.dtype()), DimsToString(buffer.dims()), " on ",
                           buffer.device()->name, "; the program takes ", ToString(type), " on ", device->name);
    }
    // The outcome of a launch that failed reaches all that depend on it.
    if (buffer.ready().done()) WEFT_RETURN_IF_ERROR(buffer.ready().status());
    arguments.push_back(static_cast<const PjrtBuffer&>(buffer).get());
    if (!program_.aliased[i]) continue;
    if (i < given.donated.size() && given.donated[i] != 0) {
      taken.push_back(arguments.back());
      gone += buffer.bytes();
    } else {
      kept.push_back(static_cast<int64_t>(i));
    }
  }
  Ref<Buffer> words;
  if (program_.words > 0) {
    const int64_t count = program_.words;
    WEFT_ASSIGN_OR_RETURN(words, Upload(client_, device, DType::kU32, {&count, 1}, given.words.data(), nullptr));
    arguments.push_back(static_cast<const PjrtBuffer&>(*words).get());
  }
  for (const ir::Type& type : program_.results) more += type.bytes();
  Usage& usage = client_->usage(device->id);
  WEFT_RETURN_IF_ERROR(usage.Exchange(more, gone, program_.stats.temporary_bytes));
  api::ExecuteOptions options;
  options.head.struct_size = sizeof(options);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  std::vector<api::Buffer*> outputs(program_.results.size());
  api::Buffer* const* const argument_list = arguments.data();
  api::Buffer** const output_list = outputs.data();
  api::Event* complete = nullptr;
  api::Execute execute{.options = &options, .argument_lists = &argument_list, .num_devices = 1};
  execute.num_args = arguments.size();
  execute.output_lists = &output_list;
  execute.device_complete_events = &complete;
  if (absl::Status status = Launch(device->id, taken, &execute); !status.ok()) {
    usage.GiveBack(more - gone);
    return status;
  }
  for (size_t i = 0; i < given.buffers.size(); ++i) {
    if (i < given.donated.size() && given.donated[i] != 0 && program_.aliased[i])
      static_cast<PjrtBuffer&>(*given.buffers[i]).TakenOver();
  }
  std::vector<DeviceResults> results(1);
  results[0].done = MakeRef<Event>();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ir::Type& type = program_.results[i];
    results[0].buffers.push_back(Ref<Buffer>(new PjrtBuffer(client_, device, type.dtype, type.dims, results[0].done,
                                                            Share(&usage, type.bytes()), outputs[i])));
  }
  std::string what = absl::StrCat("a launch on ", device->name);
  if (!taken.empty())
    absl::StrAppend(&what, " that had taken over ", taken.size(), " of ", given.buffers.size(), " buffers");
  client_->Forward(device->id, complete, std::move(what), results[0].done);
  return results;
}

class PjrtBackend final : public Backend {
 public:
  PjrtBackend(std::shared_ptr<Client> client, const Options& options)
      : client_(std::move(client)), platform_(options.platform), precision_(options.matmul_precision) {
    devices_.resize(client_->devices().size());
    for (size_t i = 0; i < devices_.size(); ++i) {
      Device& device = devices_[i];
      device.type = client_->platform() == "cuda" ? kDlCuda : kDlExtDev;
      device.id = static_cast<int32_t>(i);
      device.name = absl::StrCat(platform_, ":", i);
      device.kind = client_->KindOf(client_->devices()[i]);
      device.backend = this;
      pointers_.push_back(&device);
    }
  }

  void Close() override {
    if (client_->watch() != nullptr) client_->watch()->Close();
  }

  std::string_view platform() const override { return platform_; }
  std::span<Device* const> devices() const override { return pointers_; }
  Target target(const CompileOptions&) const override {
    return TargetOf(client_->plugin(), client_->fingerprint(), precision_);
  }
  bool Claims(const ir::Node& node) const override { return StaysWhole(node); }
  bool HasSource() const override { return true; }
  absl::StatusOr<std::string> Source(const ir::Module& module) const override {
    Program program;
    return ToText(module, &program, {precision_, client_->platform()});
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module,
                                                      const CompileOptions& options) override {
    if (options.progress != nullptr) options.progress->phase = kCompiling;
    Program program;
    WEFT_ASSIGN_OR_RETURN(std::string text, ToText(module, &program, {precision_, client_->platform()}));
    api::LoadedExecutable* made = nullptr;
    const auto compile = [&](std::string_view with) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(made, CompileText(*client_, text, with));
      return absl::OkStatus();
    };
    const absl::Status compiled = CompileFor(client_->IdOf(0), client_->alone(), compile, &program);
    if (!compiled.ok()) return Refused(compiled, module, {precision_, client_->platform()});
    if (program.device >= 0) client_->SetAlone();
    if (devices_.size() > 1) program.text = std::move(text);
    return Made(std::move(program), made, /*compiled=*/true);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized) override {
    Program program;
    WEFT_ASSIGN_OR_RETURN(const std::string_view bytes, Unpack(serialized, &program));
    const bool alone = program.device >= 0;
    WEFT_ASSIGN_OR_RETURN(api::LoadedExecutable* const loaded, LoadBytes(*client_, bytes, alone ? 0 : -1));
    if (alone) {
      program.device = client_->IdOf(0);
      client_->SetAlone();
    }
    return Made(std::move(program), loaded, /*compiled=*/false);
  }

  CustomCallers custom_callers() const override { return CustomCallers::kEngine; }
  absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes) override {
    return Upload(client_, device, dtype, dims, bytes.data(), nullptr);
  }
  absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release) override {
    if (release == nullptr) release = [] {};
    return Upload(client_, device, dtype, dims, data, std::move(release));
  }
  absl::Status FromDevice(Buffer& buffer, int64_t offset, std::span<std::byte> destination) override {
    WEFT_RETURN_IF_ERROR(buffer.ready().Wait());  // one that failed may be none of ours
    return static_cast<PjrtBuffer&>(buffer).Read(offset, destination);
  }

  MemoryStats memory_stats(Device* device) const override {
    const Usage& usage = client_->usage(device->id);
    const std::optional<api::DeviceMemoryStats> stats = LimitedStats(device);
    int64_t limit = stats ? stats->bytes_limit.value : 0;
    if (usage.limit() > 0 && (limit == 0 || usage.limit() < limit)) limit = usage.limit();
    return {usage.bytes(), usage.peak(), limit};
  }
  std::string attributes(Device* device) const override {
    return AttributesOf(client_->plugin(), client_->DescriptionOf(client_->devices()[static_cast<size_t>(device->id)]));
  }
  int64_t bytes_available(Device* device) const override {
    const Usage& usage = client_->usage(device->id);
    int64_t room = client_->platform() == "cpu" ? ReadMachineMemory().available : -1;
    if (const auto stats = LimitedStats(device)) {
      // Launches that have not ended hold what is no tensor any more.
      room = std::max<int64_t>(0, stats->bytes_limit.value - std::max(stats->bytes_in_use, usage.bytes()));
    }
    if (usage.limit() == 0) return room;
    const int64_t own = std::max<int64_t>(0, usage.limit() - usage.bytes());
    return room < 0 ? own : std::min(room, own);
  }

 private:
  absl::StatusOr<std::unique_ptr<Executable>> Made(Program program, api::LoadedExecutable* loaded, bool compiled) {
    auto executable = std::make_unique<PjrtExecutable>(client_, pointers_, std::move(program), loaded, compiled);
    WEFT_RETURN_IF_ERROR(executable->Check());
    return executable;
  }
  // Of a device that has a limit.
  std::optional<api::DeviceMemoryStats> LimitedStats(Device* device) const {
    api::DeviceMemoryStats stats{.device = client_->devices()[static_cast<size_t>(device->id)]};
    if (!client_->plugin().Call(api::Function::kDeviceMemoryStats, &stats).ok() || !stats.bytes_limit.is_set)
      return std::nullopt;
    return stats;
  }

  const std::shared_ptr<Client> client_;
  const std::string platform_, precision_;
  std::vector<Device> devices_;
  std::vector<Device*> pointers_;
};

}  // namespace

absl::Status CheckPlatform(const Plugin& plugin, std::string_view platform, std::string_view plugins) {
  if (IsFor(platform, plugins)) return absl::OkStatus();
  return UserError("plugin '", plugin.path(), "' is for the platform ", plugins, ", not ", platform,
                   "; platform pjrt takes any");
}

Target TargetOf(const Plugin& plugin, std::string_view devices, std::string_view precision) {
  Target target{"pjrt", absl::StrCat(plugin.identity(), " ", devices, " ", absl::BytesToHexString(CompileOptionBytes()),
                                     " ", precision)};
  // By which compilers are told what no option of theirs says.
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) {
    if (const char* const flags = std::getenv(name)) absl::StrAppend(&target.fingerprint, " ", name, "=", flags);
  }
  return target;
}

absl::StatusOr<std::unique_ptr<Backend>> NewPjrtBackend(const Options& options) {
  const bool tpu = options.platform == "tpu";
  if (tpu && !options.topology.empty())
    WEFT_RETURN_IF_ERROR(CheckTpuTopology(options.topology));  // before libtpu is loaded
  std::string path = options.plugin;
  if (path.empty()) {
    WEFT_ASSIGN_OR_RETURN(path, FindPlugin(options.platform));
  }
  WEFT_ASSIGN_OR_RETURN(CreateOptions create, CreateOptions::Parse(options.plugin_options));
  // Else GPUs' plugins take most of the device's memory at once, whoever else computes there.
  if (!tpu && options.platform != "pjrt") create.Default("preallocate", "false");
  if (tpu) PrepareLibtpu();
  WEFT_ASSIGN_OR_RETURN(const Plugin* const plugin, Plugin::Open(path));
  if (!options.topology.empty()) return NewAbsentBackend(*plugin, options);
  absl::StatusOr<std::shared_ptr<Client>> client =
      Client::Create(*plugin, create, {options.memory_limit, options.launch_deadline_ms});
  if (!client.ok()) {
    std::string_view why = client.status().message();
    if (tpu && why.ends_with('.')) why.remove_suffix(1);
    return absl::Status(client.status().code(),
                        absl::StrCat("plugin '", plugin->path(), "' (PJRT ", plugin->version(),
                                     ") gives no devices: ", why, tpu ? WhatToCheckOfTpu() : ""));
  }
  WEFT_RETURN_IF_ERROR(CheckPlatform(*plugin, options.platform, (*client)->platform()));
  return std::make_unique<PjrtBackend>(*std::move(client), options);
}

}  // namespace weft::pjrt
