// See launches.h. Each device of a launch comes to it on its own thread; who comes last computes, of whole values, and hands out parts.
// A device that fails ends with its error, the others with their results.
#include <new>
#include <set>

#include "src/backends/reference/interpreter.h"
#include "src/lazy/value/sharding.h"
#include "src/runtime/float_environment.h"
#include "tests/pjrt/fake/faults.h"
#include "tests/pjrt/fake/launches.h"
#include "tests/pjrt/fake/objects.h"
#include "tests/pjrt/fake/profiler.h"

namespace weft::pjrt::fake {
namespace {

// The part of one device in a launch.
struct Part {
  api::Device* device = nullptr;
  std::vector<std::shared_ptr<Storage>> arguments, results;
  Ref<weft::Event> done = MakeRef<weft::Event>();
  absl::Status status;
};

struct Launch {
  std::shared_ptr<const Compiled> compiled;
  std::vector<Part> parts;
  Mutex mutex;
  size_t come ABSL_GUARDED_BY(mutex) = 0;
};

ir::Box BoxOf(const Compiled& compiled, const std::vector<ir::Sharding>& shardings, size_t i, const Dims& dims, size_t part) {
  const ir::Mesh& mesh = compiled.module.participants.mesh;
  if (mesh.none() || i >= shardings.size()) return {Dims(dims.size(), 0), dims};
  ir::Sharding sharding = shardings[i];
  for (ir::Sharding::Dimension& dimension : sharding.dimensions) dimension.open = false;
  return ir::BoxOf(mesh, sharding, dims, static_cast<int64_t>(part));
}

absl::Status Compute(const Launch& launch) {
  const WholeFloatScope floats;
  const Compiled& compiled = *launch.compiled;
  const ir::Participants& who = compiled.module.participants;
  std::vector<HostTensor> arguments;
  for (size_t i = 0; i < launch.parts[0].arguments.size(); ++i) {
    const ir::Type& type = compiled.run->parameters()[i].type();
    HostTensor& whole = arguments.emplace_back(type.dtype, type.dims);
    for (size_t p = launch.parts.size(); p-- > 0;) {
      const Storage& storage = *launch.parts[p].arguments[i];
      WEFT_RETURN_IF_ERROR(storage.ready->status());
      const ir::Box box = BoxOf(compiled, who.parameters, i, type.dims, p);
      lazy::CopyPartOut(storage.value.bytes(), {0, storage.bytes}, box, type.dims, BytesOf(type.dtype), 0, whole.mutable_bytes());
    }
  }
  WEFT_ASSIGN_OR_RETURN(auto results, reference::Interpret(*compiled.run, arguments));
  for (size_t i = 0; i < results.size(); ++i) {
    for (size_t p = 0; p < launch.parts.size(); ++p) {
      Storage& storage = *launch.parts[p].results[i];
      storage.value = HostTensor(storage.dtype, storage.dims);
      const ir::Box box = BoxOf(compiled, who.results, i, results[i].dims(), p);
      lazy::CopyPartIn(results[i].bytes(), results[i].dims(), box, BytesOf(storage.dtype), storage.value.mutable_bytes());
    }
  }
  return absl::OkStatus();
}

absl::Status Come(Launch& launch, size_t p) {
  api::Device& device = *launch.parts[p].device;
  const auto faults = Current();
  Pause(device);
  WEFT_RETURN_IF_ERROR(Alive(device));
  ++device.launches;
  WEFT_RETURN_IF_ERROR(faults->Call(absl::StrCat("launch on ", device.description.id)));
  if (p != 0) return absl::OkStatus();
  ++counts.launches;
  return faults->Call("launch");
}

// On the thread of the p-th device.
void Run(Launch& launch, size_t p) {
  // An argument may come from another device's thread, which waits for nothing that was begun later.
  for (const auto& argument : launch.parts[p].arguments) argument->ready->Wait().IgnoreError();
  absl::Status come = Come(launch, p);
  {
    MutexLock lock(launch.mutex);
    launch.parts[p].status = std::move(come);
    if (++launch.come < launch.parts.size()) return;
  }
  absl::Status status;
  const int64_t begin = RealtimeNow();
  try {
    status = Compute(launch);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("fake: no memory while a launch ran");
  }
  const int64_t end = RealtimeNow();
  for (Part& part : launch.parts) {
    NoteLaunch(part.device->description.id, begin, end);
    part.status.Update(status);
    part.arguments.clear();
    for (const auto& result : part.results) result->ready->Complete(part.status);
    part.results.clear();
    part.done->Complete(part.status);
  }
}

absl::StatusOr<std::vector<api::Device*>> DevicesOf(const api::Execute& args) {
  const api::LoadedExecutable& executable = *args.executable;
  if (executable.all.size() > 1) {
    if (args.num_devices != executable.all.size()) return absl::InvalidArgumentError("fake: another number of devices");
    std::vector<api::Device*> devices;
    for (const int64_t id : executable.all) devices.push_back(executable.client->devices[static_cast<size_t>(id)]);
    return devices;
  }
  if (args.num_devices != 1) return absl::UnimplementedError("fake: several devices in a launch of a program for one");
  if (args.execute_device != nullptr && executable.device >= 0) {
    return absl::InvalidArgumentError("fake: execute_device is for programs that are compiled for any");
  }
  const size_t own = static_cast<size_t>(std::max<int64_t>(0, executable.device));
  return std::vector<api::Device*>{args.execute_device != nullptr ? args.execute_device : executable.client->devices[own]};
}

// The arguments of the p-th device; those that are taken over are put behind `taken`.
absl::Status Take(const api::Execute& args, const std::set<int64_t>& kept, Launch* launch, size_t p, std::vector<api::Buffer*>* taken) {
  const Compiled& compiled = *launch->compiled;
  const ir::Function& main = compiled.module.main();
  Part& part = launch->parts[p];
  WEFT_RETURN_IF_ERROR(Alive(*part.device));
  int64_t wanted = 0;
  for (size_t i = 0; i < args.num_args; ++i) {
    api::Buffer* const buffer = args.argument_lists[p][i];
    const ir::Type& type = main.parameters()[i].type();
    WEFT_ASSIGN_OR_RETURN(auto storage, StorageOf(*buffer));
    if (storage->device != part.device || storage->dtype != type.dtype ||
        storage->dims != BoxOf(compiled, compiled.module.participants.parameters, i, type.dims, p).sizes) {
      return absl::InvalidArgumentError(absl::StrCat("fake: argument ", i, " is no ", ToString(type), " on device ", part.device->description.id));
    }
    if (main.parameter_infos()[i].donated_to >= 0 && !kept.contains(static_cast<int64_t>(i))) {
      taken->push_back(buffer);
      wanted -= storage->bytes;
    }
    part.arguments.push_back(std::move(storage));
  }
  for (size_t i = 0; i < main.results().size(); ++i) {
    const ir::Type& type = main.results()[i].type();
    wanted += CountOf(BoxOf(compiled, compiled.module.participants.results, i, type.dims, p).sizes) * BytesOf(type.dtype);
  }
  return Room(*part.device, wanted);
}

}  // namespace

absl::Status LoadedExecutableExecute(api::Execute& args) {
  const auto launch = std::make_shared<Launch>();
  launch->compiled = args.executable->compiled;
  const Compiled& compiled = *launch->compiled;
  const ir::Function& main = compiled.module.main();
  WEFT_ASSIGN_OR_RETURN(const std::vector<api::Device*> devices, DevicesOf(args));
  WEFT_RETURN_IF_ERROR(Alive(*devices[0]));
  if (args.num_args != main.parameters().size()) {
    return absl::InvalidArgumentError(absl::StrCat("fake: ", args.num_args, " arguments, not ", main.parameters().size()));
  }
  std::set<int64_t> kept;
  for (size_t i = 0; i < args.options->num_non_donatable_input_indices; ++i) kept.insert(args.options->non_donatable_input_indices[i]);
  std::vector<api::Buffer*> taken;
  for (size_t p = 0; p < devices.size(); ++p) {
    launch->parts.emplace_back().device = devices[p];
    WEFT_RETURN_IF_ERROR(Take(args, kept, launch.get(), p, &taken));
  }
  // From here on nothing fails but the launch itself.
  for (api::Buffer* buffer : taken) {
    MutexLock lock(buffer->mutex);
    if (buffer->storage != nullptr) buffer->storage->GiveBack();
    buffer->storage = nullptr;
  }
  for (size_t p = 0; p < devices.size(); ++p) {
    Part& part = launch->parts[p];
    for (size_t i = 0; i < main.results().size(); ++i) {
      const ir::Type& type = main.results()[i].type();
      part.results.push_back(std::make_shared<Storage>(part.device, type.dtype, BoxOf(compiled, compiled.module.participants.results, i, type.dims, p).sizes));
      args.output_lists[p][i] = NewBuffer(part.results.back());
    }
    if (args.device_complete_events != nullptr) args.device_complete_events[p] = new api::Event{part.done};
  }
  for (size_t p = 0; p < devices.size(); ++p) devices[p]->line.Add([launch, p] { Run(*launch, p); });
  return absl::OkStatus();
}

}  // namespace weft::pjrt::fake
