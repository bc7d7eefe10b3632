// See pjrt_backend.h.
#include "src/backends/pjrt/pjrt_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"

#include "src/backends/device_copies.h"
#include "src/backends/open_results.h"
#include "src/backends/pjrt/absent_backend.h"
#include "src/backends/pjrt/aside.h"
#include "src/backends/pjrt/attributes.h"
#include "src/backends/pjrt/client.h"
#include "src/backends/pjrt/device_copy.h"
#include "src/backends/pjrt/executable_stats.h"
#include "src/backends/pjrt/find.h"
#include "src/backends/pjrt/libtpu.h"
#include "src/backends/pjrt/loaded.h"
#include "src/backends/pjrt/profiler.h"
#include "src/backends/pjrt/program.h"
#include "src/backends/pjrt/shardings.h"
#include "src/backends/pjrt/topology.h"
#include "src/backends/strided_uploads.h"
#include "src/ir/op_def.h"
#include "src/passes/shardings.h"
#include "src/runtime/alloc_hook.h"
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

// A copy to a device as far as it has come, and all that it reads.
struct HostUpload {
  explicit HostUpload(std::shared_ptr<Client> of) : client(std::move(of)) {}
  ~HostUpload() {
    if (call.buffer != nullptr)
      client->plugin().Destroy(api::Function::kBufferDestroy, api::OfBuffer{.buffer = call.buffer});
  }
  HostUpload(const HostUpload&) = delete;
  HostUpload& operator=(const HostUpload&) = delete;

  // Client::Begin calls this, within a deadline or without.
  absl::Status Begin(const std::string& what, const Ref<Event>& ended);

  const std::shared_ptr<Client> client;
  Dims dims, byte_strides;
  std::shared_ptr<void> memory;   // within a deadline; else the caller's is read
  std::function<void()> release;  // of memory that is read until it is not needed any more; null: none
  api::BufferFromHostBuffer call;
};

absl::Status HostUpload::Begin(const std::string& what, const Ref<Event>& ended) {
  const Plugin& plugin = client->plugin();
  const absl::Status begun = CallForMemory(plugin, api::Function::kClientBufferFromHostBuffer, &call);
  api::Event* const read = std::exchange(call.done_with_host_buffer, nullptr);
  if (!begun.ok() || release == nullptr) {
    absl::Status used = plugin.Await(read);
    WEFT_RETURN_IF_ERROR(begun);
    WEFT_RETURN_IF_ERROR(used);
  } else {
    Ref<Event> done = MakeRef<Event>();
    done->OnDone([release = std::move(release)](const absl::Status&) { release(); });
    plugin.Forward(read, "", done);
  }
  plugin.ForwardReady(call.buffer, what, ended);
  return absl::OkStatus();
}

// Without `byte_strides` the elements are neighbours. With them nothing may read the data later: there is no deadline.
absl::StatusOr<Ref<Buffer>> Upload(const std::shared_ptr<Client>& client, Device* device, DType dtype,
                                   std::span<const int64_t> dims, const void* data, std::function<void()> release,
                                   std::span<const int64_t> byte_strides = {}) {
  const api::ElementType type = ElementTypeOf(dtype);
  if (type == api::ElementType::kInvalid) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "tensors of ", NameOf(dtype), " cannot be on ", device->name);
  }
  const int64_t bytes = CountOf(dims) * BytesOf(dtype);
  WEFT_ASSIGN_OR_RETURN(Share share, ShareOf(client->usage(device->id), bytes));
  const auto upload = std::make_shared<HostUpload>(client);
  upload->dims.assign(dims.begin(), dims.end());
  if (client->watch() != nullptr && bytes > 0) {
    // The plugin may read it when its caller waits no longer.
    const auto size = static_cast<size_t>(bytes);
    upload->memory = std::shared_ptr<void>(AllocateLarge(size), [size](void* at) { FreeLarge(at, size); });
    if (upload->memory == nullptr) return NoLargeMemory(absl::StrCat("a copy of ", bytes, " bytes to ", device->name));
    std::memcpy(upload->memory.get(), data, size);
    data = upload->memory.get();
  } else {
    upload->release = std::exchange(release, nullptr);
  }
  api::BufferFromHostBuffer& call = upload->call;
  static constexpr char kNoBytes[16] = {};
  call.client = client->get();
  call.data = data != nullptr ? data : kNoBytes;  // an empty tensor has no bytes, but an address
  call.type = type;
  call.dims = upload->dims.data();
  call.num_dims = upload->dims.size();
  upload->byte_strides.assign(byte_strides.begin(), byte_strides.end());
  call.byte_strides = byte_strides.empty() ? nullptr : upload->byte_strides.data();
  call.num_byte_strides = byte_strides.size();
  call.semantics =
      upload->release != nullptr ? api::HostBuffer::kImmutableZeroCopy : api::HostBuffer::kImmutableOnlyDuringCall;
  call.device = client->devices()[static_cast<size_t>(device->id)];
  const std::string what = absl::StrCat("a copy to ", device->name);
  const Ref<Event> ready = MakeRef<Event>();
  const auto begin = [upload, what](const Ref<Event>& ended) { return upload->Begin(what, ended); };
  const std::optional<absl::Status> begun = client->Begin(device->id, what, begin, ready);
  if (!begun.has_value()) return ready->status();
  WEFT_RETURN_IF_ERROR(*begun);
  if (release != nullptr) release();
  return Ref<Buffer>(new PjrtBuffer(client, device, dtype, std::move(upload->dims), ready, std::move(share),
                                    std::exchange(call.buffer, nullptr)));
}

// A program as it is loaded, for all who launch it.
struct LoadedProgram {
  LoadedProgram(std::shared_ptr<Client> its_client, Program its_program, api::LoadedExecutable* executable)
      : client(std::move(its_client)), program(std::move(its_program)), loaded(client, program, executable) {}

  const std::shared_ptr<Client> client;
  Program program;
  Loaded loaded;
};

// A launch as far as it has come, and all that it reads.
struct Launch {
  // The buffers that one of its devices gets and gives.
  struct Share {
    std::vector<api::Buffer*> arguments;
    std::vector<api::Buffer*> outputs;  // null: none yet, or somebody else has it
    api::Event* complete = nullptr;
  };
  Launch(std::shared_ptr<LoadedProgram> of, std::span<Device* const> on)
      : program(std::move(of)), devices(on.begin(), on.end()), shares(on.size()) {
    for (Share& share : shares) share.outputs.resize(program->program.results.size());
  }
  ~Launch() {
    for (const Share& share : shares) {
      for (api::Buffer* output : share.outputs) {
        if (output != nullptr) plugin().Destroy(api::Function::kBufferDestroy, api::OfBuffer{.buffer = output});
      }
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  const Plugin& plugin() const { return program->client->plugin(); }
  void Takes(size_t share, const Ref<Buffer>& buffer) {
    kept_alive.push_back(buffer);
    shares[share].arguments.push_back(static_cast<const PjrtBuffer&>(*buffer).get());
  }
  // Client::Begin calls this. Where a plugin runs no program for all devices, it is launched once more by one for this
  // device alone.
  absl::Status Begin(const std::string& what, const Ref<Event>& ended);
  // INTERNAL where the plugin has not said of all results what they are, or not when they are ready.
  absl::Status CheckOutputs() const;

  const std::shared_ptr<LoadedProgram> program;
  const std::vector<Device*> devices;  // in the order of the program's processes
  std::vector<Ref<Buffer>> kept_alive;
  std::vector<Share> shares;        // of each device
  std::vector<int64_t> kept;        // arguments that the program would take over and may not
  std::vector<api::Buffer*> taken;  // arguments that it takes over
  absl::Status broken;              // what was launched and cannot be used

 private:
  absl::Status Enter(api::Execute* execute);
  // `ended` is complete when each device is done; the first error is its outcome.
  void ForwardAll(const std::string& what, const Ref<Event>& ended);
};

absl::Status Launch::Enter(api::Execute* execute) {
  Loaded& loaded = program->loaded;
  const auto launch = [&](const Loaded::Place& place) {
    execute->executable = place.executable;
    execute->execute_device = place.device;
    return CallForMemory(plugin(), api::Function::kLoadedExecutableExecute, execute, taken);
  };
  if (devices.size() > 1) return launch(loaded.OnAll());
  const int device = devices[0]->id;
  WEFT_ASSIGN_OR_RETURN(const Loaded::Place place, loaded.On(device));
  absl::Status status = launch(place);
  // One that has compiled for its first device whatever the options said refuses the device, or the arguments because of theirs.
  const bool refused = absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
  if (!refused || place.device == nullptr || AnyGone(plugin(), taken)) return status;
  const absl::StatusOr<Loaded::Place> alone = loaded.Alone(device);
  if (!alone.ok() || !launch(*alone).ok()) return status;
  program->client->SetAlone();
  return absl::OkStatus();
}

absl::Status Launch::CheckOutputs() const {
  for (const Share& share : shares) {
    for (size_t i = 0; i < share.outputs.size(); ++i) {
      if (share.outputs[i] != nullptr) continue;
      return plugin().NotWritten(api::Function::kLoadedExecutableExecute, absl::StrCat("result ", i));
    }
    if (share.complete == nullptr) return plugin().NotWritten(api::Function::kLoadedExecutableExecute, "event");
  }
  return absl::OkStatus();
}

void Launch::ForwardAll(const std::string& what, const Ref<Event>& ended) {
  if (shares.size() == 1) return plugin().Forward(std::exchange(shares[0].complete, nullptr), what, ended);
  std::vector<Ref<Event>> each;
  for (size_t d = 0; d < shares.size(); ++d) {
    each.push_back(MakeRef<Event>());
    plugin().Forward(std::exchange(shares[d].complete, nullptr), absl::StrCat(what, ", ", devices[d]->name), each[d]);
  }
  Event::All(each)->OnDone([ended](const absl::Status& status) { ended->Complete(status); });
}

absl::Status Launch::Begin(const std::string& what, const Ref<Event>& ended) {
  api::ExecuteOptions options;
  options.head.struct_size = sizeof(options);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  std::vector<api::Buffer* const*> argument_lists;
  std::vector<api::Buffer**> output_lists;
  std::vector<api::Event*> events(shares.size());
  for (Share& share : shares) {
    argument_lists.push_back(share.arguments.data());
    output_lists.push_back(share.outputs.data());
  }
  api::Execute execute{.options = &options, .argument_lists = argument_lists.data(), .num_devices = shares.size()};
  execute.num_args = shares[0].arguments.size();
  execute.output_lists = output_lists.data();
  execute.device_complete_events = events.data();
  WEFT_RETURN_IF_ERROR(Enter(&execute));
  for (size_t d = 0; d < shares.size(); ++d) shares[d].complete = events[d];
  broken = CheckOutputs();
  if (broken.ok()) {
    ForwardAll(what, ended);
    return absl::OkStatus();
  }
  for (Share& share : shares) {
    api::Event* const its_end = std::exchange(share.complete, nullptr);
    if (its_end != nullptr) plugin().Forward(its_end, "", MakeRef<Event>());
  }
  ended->Complete(absl::Status(broken.code(), absl::StrCat(what, ": ", broken.message())));
  return absl::OkStatus();
}

class PjrtExecutable final : public Executable, public LyingResults {
 public:
  PjrtExecutable(std::shared_ptr<Client> client, std::span<Device* const> devices, Program program,
                 api::LoadedExecutable* loaded, bool compiled, const BackendServices& services)
      : devices_(devices),
        services_(services),
        its_(std::make_shared<LoadedProgram>(std::move(client), std::move(program), loaded)) {
    if (!compiled) return;
    its_->loaded
        .WithExecutable([&](api::Executable* executable) {
          AddStats(its_->client->plugin(), executable, &its_->program.stats);
          return absl::OkStatus();
        })
        .IgnoreError();
    its_->program.stats.kernels_compiled = 1;
  }

  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override;

  absl::StatusOr<std::string> Serialize() const override {
    std::string packed;
    WEFT_RETURN_IF_ERROR(its_->loaded.WithExecutable([&](api::Executable* executable) {
      return pjrt::Serialize(its_->client->plugin(), executable, [&](std::string_view bytes) {
        packed = Pack(its_->program, bytes);
        return absl::OkStatus();
      });
    }));
    return packed;
  }
  ExecutableStats stats() const override { return its_->program.stats; }
  const std::vector<ir::Sharding>& result_shardings() const override { return its_->program.lying; }
  // Asks how the results lie that the program leaves open, before anybody launches it; false: not of all can it be said.
  absl::StatusOr<bool> Ask() {
    bool all = true;
    WEFT_RETURN_IF_ERROR(its_->loaded.WithExecutable([&](api::Executable* executable) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(all, AskShardings(its_->client->plugin(), executable, &its_->program));
      return absl::OkStatus();
    }));
    return all;
  }
  const Program& program() const { return its_->program; }

  // The plugin counts the results that it will hand out: as many as we have room for.
  absl::Status Check() const {
    return its_->loaded.WithExecutable([&](api::Executable* executable) -> absl::Status {
      const Plugin& plugin = its_->client->plugin();
      api::ExecutableNumber outputs{.executable = executable};
      WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kExecutableNumOutputs, &outputs));
      if (outputs.number == static_cast<int64_t>(its_->program.results.size())) return absl::OkStatus();
      return InternalError("plugin '", plugin.path(), "' made a program of ", outputs.number, " results, not ",
                           its_->program.results.size(), ", as ", NameOf(api::Function::kExecutableNumOutputs),
                           " says");
    });
  }

 private:
  // Takes the arguments of the device of this place as they are given; `gone`: bytes that the launch takes over.
  absl::Status Take(const DeviceArguments& given, size_t at, Launch* launch, int64_t* gone) const;

  const std::span<Device* const> devices_;  // the backend's, which outlives its executables
  const BackendServices services_;
  const std::shared_ptr<LoadedProgram> its_;
};

absl::Status PjrtExecutable::Take(const DeviceArguments& given, size_t at, Launch* launch, int64_t* gone) const {
  const Program& program = its_->program;
  Device* const device = launch->devices[at];
  if (given.buffers.size() != program.arguments.size() || given.words.size() < program.words) {
    return InternalError("a plugin's program takes ", program.arguments.size(), " buffers and ", program.words,
                         " words; ", given.buffers.size(), " and ", given.words.size(), " given");
  }
  for (size_t i = 0; i < given.buffers.size(); ++i) {
    const Buffer& buffer = *given.buffers[i];
    const ir::Type& type = program.arguments[i];
    if (buffer.device() != device || StorageOf(buffer.dtype()) != type.dtype || buffer.dims() != type.dims) {
      return InternalError("argument ", i, " is ", NameOf(buffer.dtype()), DimsToString(buffer.dims()), " on ",
                           buffer.device()->name, "; the program takes ", ToString(type), " on ", device->name);
    }
    // The outcome of a launch that failed reaches all that depend on it.
    if (buffer.ready().done()) WEFT_RETURN_IF_ERROR(buffer.ready().status());
    launch->Takes(at, given.buffers[i]);
    if (!program.aliased[i]) continue;
    if (i < given.donated.size() && given.donated[i] != 0) {
      launch->taken.push_back(launch->shares[at].arguments.back());
      *gone += buffer.bytes();
    } else if (at == 0) {
      launch->kept.push_back(static_cast<int64_t>(i));
    }
  }
  if (program.words == 0) return absl::OkStatus();
  const int64_t count = program.words;
  WEFT_ASSIGN_OR_RETURN(const Ref<Buffer> words,
                        Upload(its_->client, device, DType::kU32, {&count, 1}, given.words.data(), nullptr));
  launch->Takes(at, words);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceResults>> PjrtExecutable::Execute(std::span<const DeviceArguments> devices) {
  const Program& program = its_->program;
  const uint64_t processes = uint64_t{program.replicas} * program.partitions;
  if (devices.size() != processes) {
    return InternalError("a plugin's program of ", processes, " processes is launched on ", devices.size(), " devices");
  }
  std::vector<Device*> on;
  for (const DeviceArguments& given : devices) on.push_back(given.device != nullptr ? given.device : devices_[0]);
  const std::shared_ptr<Client>& client = its_->client;
  const auto launch = std::make_shared<Launch>(its_, on);
  int64_t more = 0;
  for (const ir::Type& type : program.results) more += type.bytes();
  std::vector<int64_t> gone(on.size());
  size_t counted = 0;  // devices whose bytes are
  absl::Cleanup give_back = [&] {
    for (size_t d = 0; d < counted; ++d) client->usage(on[d]->id).GiveBack(more - gone[d]);
  };
  for (size_t d = 0; d < on.size(); ++d) WEFT_RETURN_IF_ERROR(Take(devices[d], d, launch.get(), &gone[d]));
  for (; counted < on.size(); ++counted) {
    WEFT_RETURN_IF_ERROR(client->usage(on[counted]->id).Exchange(more, gone[counted], program.stats.temporary_bytes));
  }
  std::string what =
      absl::StrCat("a launch on ", on[0]->name, on.size() > 1 ? absl::StrCat(" to ", on.back()->name) : "");
  if (!launch->taken.empty())
    absl::StrAppend(&what, " that had taken over ", launch->taken.size(), " of ", on.size() * devices[0].buffers.size(),
                    " buffers");
  const Ref<Event> done = MakeRef<Event>();
  static constexpr SpanName kHandOver{.text = "hand over", .kind = SpanKind::kLaunch};
  const SpanScope span(*services_.trace, kHandOver);
  done->OnDone([metrics = services_.metrics, start = MonotonicNow()](const absl::Status&) {
    const int64_t now = MonotonicNow();
    metrics->Add(Sample::kRun, now - start, now);
  });
  const auto begin = [launch, what](const Ref<Event>& ended) { return launch->Begin(what, ended); };
  const std::optional<absl::Status> begun = client->Begin(on[0]->id, what, begin, done);
  if (begun.has_value() && !begun->ok()) return *begun;
  std::move(give_back).Cancel();
  std::vector<DeviceResults> results(on.size());
  for (size_t d = 0; d < on.size(); ++d) {
    const DeviceArguments& given = devices[d];
    // One that has not returned has taken over what it was given, for all that is known, and has no results.
    for (size_t i = 0; i < given.buffers.size(); ++i) {
      if (i < given.donated.size() && given.donated[i] != 0 && program.aliased[i])
        static_cast<PjrtBuffer&>(*given.buffers[i]).TakenOver();
    }
    results[d].done = done;
    Usage& usage = client->usage(on[d]->id);
    for (size_t i = 0; i < program.results.size(); ++i) {
      const ir::Type& type = program.results[i];
      api::Buffer* const output = begun.has_value() ? std::exchange(launch->shares[d].outputs[i], nullptr) : nullptr;
      results[d].buffers.push_back(
          Ref<Buffer>(new PjrtBuffer(client, on[d], type.dtype, type.dims, done, Share(&usage, type.bytes()), output)));
    }
  }
  return results;
}

class PjrtBackend final : public Backend, public OpenResults, public StridedUploads, public DeviceCopies {
 public:
  PjrtBackend(std::shared_ptr<Client> client, const Options& options)
      : client_(std::move(client)),
        platform_(options.platform),
        precision_(options.matmul_precision),
        services_(options.services) {
    devices_.resize(client_->devices().size());
    for (size_t i = 0; i < devices_.size(); ++i) {
      Device& device = devices_[i];
      device.type = client_->platform() == "cuda" ? kDlCuda : kDlExtDev;
      device.id = static_cast<int32_t>(i);
      device.name = absl::StrCat(platform_, ":", i);
      device.kind = client_->KindOf(client_->devices()[i]);
      device.backend = this;
      device.live = devices_[0].live;
      pointers_.push_back(&device);
    }
    if (auto profiler = NewProfiler(client_->plugin(), services_.log)) services_.trace->AddSource(std::move(profiler));
  }

  void Close() override { client_->Close(); }

  std::string_view platform() const override { return platform_; }
  std::span<Device* const> devices() const override { return pointers_; }
  Target target(const CompileOptions&) const override {
    return TargetOf(client_->plugin(), client_->fingerprint(), precision_);
  }
  bool Claims(const ir::Node& node) const override { return StaysWhole(node); }
  bool HasSource() const override { return true; }
  bool TakesOpenResults() const override { return TellsShardings(client_->plugin()); }
  absl::StatusOr<std::string> Source(const ir::Module& module) const override {
    Program program;
    return ToText(module, &program, {precision_, client_->platform()});
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module,
                                                      const CompileOptions& options) override {
    const SpanScope span(*services_.trace, kCompileSpan);
    if (options.progress != nullptr) options.progress->phase = kCompiling;
    Program program;
    WEFT_ASSIGN_OR_RETURN(std::string text, ToText(module, &program, {precision_, client_->platform()}));
    api::LoadedExecutable* made = nullptr;
    const auto compile = [&](std::string_view with) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(made, CompileText(*client_, text, with));
      return absl::OkStatus();
    };
    const auto id_of = [&](uint32_t i) { return client_->IdOf(static_cast<int>(i)); };
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> assigned,
                          AssignedIds(program, options.assignment, devices_.size(), id_of));
    const absl::Status compiled = CompileFor(client_->IdOf(0), client_->alone(), assigned, compile, &program);
    if (!compiled.ok()) return Refused(compiled, module, {precision_, client_->platform()});
    if (program.device >= 0) client_->SetAlone();
    if (devices_.size() > 1) program.text = std::move(text);
    const bool open = std::ranges::any_of(program.lying, passes::IsOpen);
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<PjrtExecutable> executable, Made(std::move(program), made, true));
    if (!open) return executable;
    WEFT_ASSIGN_OR_RETURN(const bool all, executable->Ask());
    if (all) return executable;
    return Compile(WithoutOpenResults(module, executable->program()), options);
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
  absl::StatusOr<Ref<Buffer>> ToDeviceStrided(Device* device, DType dtype, std::span<const int64_t> dims,
                                              std::span<const int64_t> byte_strides, const std::byte* data) override {
    if (client_->watch() != nullptr) {
      return absl::UnimplementedError("within a deadline the plugin reads memory of the library's own");
    }
    return Upload(client_, device, dtype, dims, data, nullptr, byte_strides);
  }
  absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release) override {
    if (release == nullptr) release = [] {};
    absl::StatusOr<Ref<Buffer>> buffer = Upload(client_, device, dtype, dims, data, std::move(release));
    // CPUs read it in place for good: no launch writes there.
    if (buffer.ok() && client_->platform() == "cpu") (*buffer)->Hold();
    return buffer;
  }
  absl::StatusOr<Ref<Buffer>> CopyToDevice(const Ref<Buffer>& from, Device* to) override {
    return pjrt::CopyToDevice(client_, from, to);
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
  absl::StatusOr<std::unique_ptr<PjrtExecutable>> Made(Program program, api::LoadedExecutable* loaded, bool compiled) {
    auto executable =
        std::make_unique<PjrtExecutable>(client_, pointers_, std::move(program), loaded, compiled, services_);
    WEFT_RETURN_IF_ERROR(executable->Check());
    return executable;
  }
  // Returns the statistics of a device that has a limit.
  std::optional<api::DeviceMemoryStats> LimitedStats(Device* device) const {
    api::DeviceMemoryStats stats{.device = client_->devices()[static_cast<size_t>(device->id)]};
    if (!client_->plugin().Call(api::Function::kDeviceMemoryStats, &stats).ok() || !stats.bytes_limit.is_set)
      return std::nullopt;
    return stats;
  }

  const std::shared_ptr<Client> client_;
  const std::string platform_, precision_;
  const BackendServices services_;
  std::vector<Device> devices_;
  std::vector<Device*> pointers_;
};

absl::StatusOr<std::unique_ptr<Backend>> OnDevices(const Plugin& plugin, const CreateOptions& create,
                                                   const Options& options) {
  absl::StatusOr<std::shared_ptr<Client>> client =
      Client::Create(plugin, create, {options.services.budget->limit(), options.launch_deadline_ms});
  if (!client.ok()) {
    const bool tpu = options.platform == "tpu";
    std::string_view why = client.status().message();
    if (tpu && why.ends_with('.')) why.remove_suffix(1);
    return absl::Status(client.status().code(),
                        absl::StrCat("plugin '", plugin.path(), "' (PJRT ", plugin.version(),
                                     ") gives no devices: ", why, tpu ? WhatToCheckOfTpu() : ""));
  }
  WEFT_RETURN_IF_ERROR(CheckPlatform(plugin, options.platform, (*client)->platform()));
  return std::make_unique<PjrtBackend>(*std::move(client), options);
}

}  // namespace

absl::Status CheckPlatform(const Plugin& plugin, std::string_view platform, std::string_view plugins) {
  if (IsFor(platform, plugins)) return absl::OkStatus();
  return UserError("plugin '", plugin.path(), "' is for the platform ", plugins, ", not ", platform,
                   "; platform pjrt takes any");
}

Target TargetOf(const Plugin& plugin, std::string_view devices, std::string_view precision) {
  Target target{"pjrt", absl::StrCat(plugin.identity(), " ", devices, " ", absl::BytesToHexString(CompileOptionBytes()),
                                     " ", precision)};
  // These variables tell compilers what no option of theirs says.
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
  // Else GPUs' plugins take most of the device's memory at once, even where other processes compute.
  if (!tpu && options.platform != "pjrt") create.Default("preallocate", "false");
  if (tpu) PrepareLibtpu();
  WEFT_ASSIGN_OR_RETURN(const Plugin* const plugin, Plugin::Open(path, options.start_deadline_ms));
  const auto made = std::make_shared<absl::StatusOr<std::unique_ptr<Backend>>>(nullptr);
  const std::string what = absl::StrCat("plugin '", plugin->path(), "' (PJRT ", plugin->version(), ")");
  const KeptSignals signals;
  WEFT_RETURN_IF_ERROR(StartInTime(options.start_deadline_ms, what, [made, plugin, create, options] {
    *made = options.topology.empty() ? OnDevices(*plugin, create, options) : NewAbsentBackend(*plugin, options);
  }));
  return std::move(*made);
}

}  // namespace weft::pjrt
