// libweft_pjrt_fake.so: a PJRT plugin over the reference interpreter, for what real plugins do not do when asked. Programs are
// StableHLO text, read by Weft's own reader. A device is a thread: uploads, launches and downloads of one happen one after the
// other, and whoever asked to be called when they have is called from there.
//
// The variable WEFT_FAKE, read when the first client is made (the settings in the first block: when the library is loaded), or
// WeftFakeSet at any time, says what goes wrong. Settings are divided by ';':
//
//   functions=N        the table ends before function N          missing=PJRT_X     the table has null for it (any number of these)
//   major=N  minor=N   another version                           extensions         a chain of an unknown one and a short one
//   no_initialize      PJRT_Plugin_Initialize fails              signals            it sets handlers for SIGSEGV, SIGTERM, SIGUSR2
//
//   devices=N          of a client                               memory=N           bytes a device has
//   turned             four devices of coordinates (1, 1), (0, 1), (1, 0), (0, 0), the others of (0, 1) as usual
//   slow_ms=N          everything on a device takes so long      slow_compile_ms=N  compiling does
//   dies=D:N           device D runs N launches and is gone      refuses_load       programs are not loaded
//   hangs=D            what device D begins does not end before another text is set
//   refuses=NAME       programs with that operation are not compiled, as XLA's translator says it
//   portable=0         programs for any device are not compiled  ignores_portable   they are compiled for the first one
//   keeps_device       what is loaded is for the device that it was compiled for, whatever the options say
//   fail=PJRT_X:N:C    the N-th call since this was set fails with code C (any number of these); fail=launch:N:C: not the call
//                      but the launch, when it runs; fail=launch on D:N:C: on that device of it; fail=copy:N:C: a copy from
//                      device to device, when it runs; N = 0: each call
//   silent=PJRT_X      answers success and has done nothing (any number of these; of what destroys: it is done)
//   last_zero=PJRT_X   answers success, done as usual, and the last word of its arguments is zero
//   PLUGIN_Profiler_X  stand in fail=, and PLUGIN_Profiler_CollectData in silent=: it then gives what is no message
//   blocks=PJRT_X      does not begin before another text is set; blocks_after=PJRT_X: does not return
//
// Options of PJRT_Client_Create: devices (a number). Others are refused, as other plugins do. Topologies are called fake:N, of N
// devices.
// WeftFakeCount("PJRT_X") is how often that was called in this process; "to_device", "from_device" bytes copied; "launches" those that
// ran. With WEFT_FAKE_COUNTS=PATH a line "NAME COUNT" for each function that was called is written there when a client ends.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <set>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "tests/pjrt/fake/faults.h"
#include "tests/pjrt/fake/launches.h"
#include "tests/pjrt/fake/more_api.h"
#include "tests/pjrt/fake/objects.h"
#include "tests/pjrt/fake/profiler.h"
#include "tests/pjrt/fake/programs.h"

namespace weft::pjrt::fake {
namespace {

// --- Errors, events, the plugin --------------------------------------------------------------------------------------------

absl::Status EventDestroy(api::OfEvent& args) {
  delete args.event;
  return absl::OkStatus();
}
absl::Status EventIsReady(api::EventIsReady& args) {
  args.ready = args.event->event->done();
  return absl::OkStatus();
}
absl::Status EventError(api::OfEvent& args) { return args.event->event->status(); }
absl::Status EventAwait(api::OfEvent& args) { return args.event->event->Wait(); }
absl::Status EventOnReady(api::EventOnReady& args) {
  args.event->event->OnDone([callback = args.callback, user = args.user](const absl::Status& status) {
    callback(status.ok() ? nullptr : new api::Error{status}, user);
  });
  return absl::OkStatus();
}

void Nothing(int) {}

absl::Status PluginInitialize(api::PluginInitialize&) {
  const auto faults = Current();
  if (!faults->initializes) return absl::UnavailableError("fake: told not to start");
  if (faults->signals) {
    for (const int number : {SIGSEGV, SIGTERM, SIGUSR2}) signal(number, Nothing);
  }
  return absl::OkStatus();
}
absl::Status PluginAttributes(api::PluginAttributes& args) {
  static const api::NamedValue kOnly{.name = "fake", .name_size = 4, .kind = api::NamedValue::Kind::kBool, .flag = true, .value_size = 1};
  args.attributes = &kOnly;
  args.num_attributes = 1;
  return absl::OkStatus();
}

// --- Clients and devices ---------------------------------------------------------------------------------------------------

void AddDescriptions(int64_t count, api::Topology* topology) {
  for (int64_t i = 0; i < count; ++i) {
    topology->descriptions.push_back(&topology->owned.emplace_back(static_cast<int>(i)));
  }
}

absl::Status ClientCreate(api::ClientCreate& args) {
  int64_t devices = Current()->devices;
  for (size_t i = 0; i < args.num_options; ++i) {
    const api::NamedValue& option = args.options[i];
    const std::string_view name(option.name, option.name_size);
    if (name != "devices" || option.kind != api::NamedValue::Kind::kInt64) {
      return absl::InvalidArgumentError(absl::StrCat("fake: unknown option ", name));
    }
    devices = option.integer;
  }
  auto* const client = new api::Client;
  for (int64_t i = 0; i < devices; ++i) {
    api::Device& device = *client->owned.emplace_back(std::make_unique<api::Device>());
    device.description.id = static_cast<int>(i);
    device.client = client;
    client->devices.push_back(&device);
  }
  AddDescriptions(devices, &client->topology);
  args.client = client;
  return absl::OkStatus();
}

absl::Status ClientDestroy(api::ClientDestroy& args);  // below the table, which it reads

absl::Status Text(std::string_view text, const char** to, size_t* size) {
  *to = text.data();
  *size = text.size();
  return absl::OkStatus();
}
constexpr std::string_view kPlatform = "fake", kVersion = "fake 1";
absl::Status ClientPlatformName(api::ClientText& args) { return Text(kPlatform, &args.text, &args.size); }
absl::Status ClientPlatformVersion(api::ClientText& args) { return Text(kVersion, &args.text, &args.size); }
absl::Status ClientProcessIndex(api::ClientNumber& args) {
  args.number = 0;
  return absl::OkStatus();
}
absl::Status ClientDevices(api::ClientDevices& args) {
  args.devices = args.client->devices.data();
  args.num_devices = args.client->devices.size();
  return absl::OkStatus();
}
absl::Status DeviceGetDescription(api::DeviceGetDescription& args) {
  args.description = &args.device->description;
  return absl::OkStatus();
}
absl::Status DeviceIsAddressable(api::DeviceFlag& args) {
  args.flag = true;
  return absl::OkStatus();
}
absl::Status DeviceLocalHardwareId(api::DeviceNumber& args) {
  args.number = args.device->description.id;
  return absl::OkStatus();
}
absl::Status DeviceMemoryStats(api::DeviceMemoryStats& args) {
  args.bytes_in_use = args.device->bytes;
  args.peak_bytes_in_use = {args.device->peak, true};
  if (Current()->memory > 0) args.bytes_limit = {Current()->memory, true};
  return absl::OkStatus();
}
absl::Status DescriptionId(api::DescriptionNumber& args) {
  args.number = args.description->id;
  return absl::OkStatus();
}
absl::Status DescriptionProcessIndex(api::DescriptionNumber& args) {
  args.number = 0;
  return absl::OkStatus();
}
absl::Status DescriptionAttributes(api::DescriptionAttributes& args) {
  using Kind = api::NamedValue::Kind;
  static constexpr int64_t kPlace[] = {0, 1};
  static constexpr int64_t kTurned[][2] = {{1, 1}, {0, 1}, {1, 0}, {0, 0}};
  static const api::NamedValue kKnown[] = {{.name = "coords", .name_size = 6, .kind = Kind::kInt64List, .integers = kPlace, .value_size = 2},
                                           {.name = "say \"it\"", .name_size = 8, .kind = Kind::kString, .string = "two\nlines", .value_size = 9},
                                           {.name = "slots", .name_size = 5, .kind = Kind::kInt64, .integer = -7, .value_size = 1},
                                           {.name = "speed", .name_size = 5, .kind = Kind::kFloat, .number = 0.5, .value_size = 1}};
  static const auto kFourTurned = [] {
    std::vector<std::vector<api::NamedValue>> all(4, {std::begin(kKnown), std::end(kKnown)});
    for (size_t i = 0; i < 4; ++i) all[i][0].integers = kTurned[i];
    return all;
  }();
  args.attributes = Current()->turned && args.description->id < 4 ? kFourTurned[static_cast<size_t>(args.description->id)].data() : kKnown;
  args.num_attributes = std::size(kKnown);
  return absl::OkStatus();
}
absl::Status DescriptionKind(api::DescriptionKind& args) {
  return Text("interpreter", &args.kind, &args.size);
}

// --- Topologies ------------------------------------------------------------------------------------------------------------

absl::Status TopologyCreate(api::TopologyCreate& args) {
  std::string_view name(args.name, args.name_size);
  int64_t devices = 0;
  if (!absl::ConsumePrefix(&name, "fake:") || !absl::SimpleAtoi(name, &devices) || devices < 0 || devices > 64) {
    return absl::InvalidArgumentError(absl::StrCat("fake: there are no ", std::string_view(args.name, args.name_size)));
  }
  if (args.num_options != 0) return absl::InvalidArgumentError("fake: topologies take no options");
  args.topology = new api::Topology;
  AddDescriptions(devices, args.topology);
  return absl::OkStatus();
}
absl::Status TopologyDestroy(api::OfTopology& args) {
  delete args.topology;
  return absl::OkStatus();
}
absl::Status TopologyPlatformName(api::TopologyText& args) { return Text(kPlatform, &args.text, &args.size); }
absl::Status TopologyPlatformVersion(api::TopologyText& args) { return Text(kVersion, &args.text, &args.size); }
absl::Status TopologyGetDeviceDescriptions(api::TopologyDevices& args) {
  args.descriptions = args.topology->descriptions.data();
  args.num_descriptions = args.topology->descriptions.size();
  return absl::OkStatus();
}
absl::Status ClientTopologyDescription(api::ClientTopology& args) {
  args.topology = &args.client->topology;
  return absl::OkStatus();
}

// --- Buffers ---------------------------------------------------------------------------------------------------------------

absl::Status BufferFromHostBuffer(api::BufferFromHostBuffer& args) {
  if (args.num_byte_strides != 0) return absl::UnimplementedError("fake: strides");
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(args.type));
  Dims dims(args.dims, args.dims + args.num_dims);
  const int64_t bytes = CountOf(dims) * BytesOf(dtype);
  api::Device* const device = args.device != nullptr ? args.device : args.client->devices[0];
  WEFT_RETURN_IF_ERROR(Alive(*device));
  WEFT_RETURN_IF_ERROR(Room(*device, bytes));
  auto storage = std::make_shared<Storage>(device, dtype, std::move(dims));
  Ref<weft::Event> done = MakeRef<weft::Event>();
  const auto* const data = static_cast<const std::byte*>(args.data);
  const auto copy = [storage, data, bytes] {
    storage->value = HostTensor(storage->dtype, storage->dims, {data, static_cast<size_t>(bytes)});
    counts.to_device += bytes;
  };
  const bool now = args.semantics == api::HostBuffer::kImmutableOnlyDuringCall;
  if (now) {
    copy();
    done->Complete(absl::OkStatus());
  }
  device->line.Add([storage, copy, done, now, device] {
    Pause(*device);
    if (!now) copy();
    storage->ready->Complete(Alive(*device));
    if (!now) done->Complete(absl::OkStatus());
  });
  args.buffer = NewBuffer(std::move(storage));
  args.done_with_host_buffer = new api::Event{done};
  return absl::OkStatus();
}

absl::Status BufferDestroy(api::OfBuffer& args) {
  delete args.buffer;
  return absl::OkStatus();
}
absl::Status BufferDelete(api::OfBuffer& args) {
  MutexLock lock(args.buffer->mutex);
  args.buffer->storage = nullptr;
  return absl::OkStatus();
}
absl::Status BufferIsDeleted(api::BufferFlag& args) {
  MutexLock lock(args.buffer->mutex);
  args.flag = args.buffer->storage == nullptr;
  return absl::OkStatus();
}
absl::Status BufferIsOnCpu(api::BufferFlag& args) {
  args.flag = false;
  return absl::OkStatus();
}
absl::Status BufferElementType(api::BufferType& args) {
  args.type = args.buffer->type;
  return absl::OkStatus();
}
absl::Status BufferDimensions(api::BufferDims& args) {
  args.dims = args.buffer->dims.data();
  args.num_dims = args.buffer->dims.size();
  return absl::OkStatus();
}
absl::Status BufferOnDeviceSize(api::BufferSize& args) {
  args.size = static_cast<size_t>(args.buffer->bytes);
  return absl::OkStatus();
}
absl::Status BufferDevice(api::BufferOnDevice& args) {
  args.device = args.buffer->device;
  return absl::OkStatus();
}
absl::Status BufferReadyEvent(api::ReadyEvent& args) {
  WEFT_ASSIGN_OR_RETURN(const auto storage, StorageOf(*args.buffer));
  args.event = new api::Event{storage->ready};
  return absl::OkStatus();
}

absl::Status BufferToHostBuffer(api::ToHostBuffer& args) {
  WEFT_ASSIGN_OR_RETURN(const auto storage, StorageOf(*args.source));
  const auto bytes = static_cast<size_t>(storage->bytes);
  if (args.destination == nullptr) {
    args.size = bytes;
    return absl::OkStatus();
  }
  if (args.size < bytes) return absl::InvalidArgumentError("fake: the destination is too small");
  if (args.host_layout != nullptr) {
    const api::Tiled& order = args.host_layout->tiled;
    for (size_t i = 0; i < order.minor_to_major_size; ++i) {
      if (order.minor_to_major[i] != static_cast<int64_t>(order.minor_to_major_size - 1 - i)) return absl::UnimplementedError("fake: a layout");
    }
  }
  Ref<weft::Event> done = MakeRef<weft::Event>();
  // Who gets no event cannot wait, and has no memory to write to.
  const bool waits = !Faults::Names(Current()->last_zero, "PJRT_Buffer_ToHostBuffer");
  storage->device->line.Add([storage, bytes, destination = args.destination, done, waits] {
    Pause(*storage->device);
    absl::Status status = storage->ready->status();
    status.Update(Alive(*storage->device));
    if (status.ok() && bytes > 0 && waits) std::memcpy(destination, storage->value.bytes().data(), bytes);
    if (status.ok()) counts.from_device += static_cast<int64_t>(bytes);
    done->Complete(std::move(status));
  });
  args.event = new api::Event{done};
  return absl::OkStatus();
}

// The source's device does it, once the source is there.
absl::Status BufferCopyToDevice(api::CopyToDevice& args) {
  WEFT_ASSIGN_OR_RETURN(const auto source, StorageOf(*args.buffer));
  if (args.device == source->device) return absl::InvalidArgumentError("fake: a copy from a device to itself");
  WEFT_RETURN_IF_ERROR(Alive(*args.device));
  WEFT_RETURN_IF_ERROR(Room(*args.device, source->bytes));
  auto copy = std::make_shared<Storage>(args.device, source->dtype, source->dims);
  args.copy = NewBuffer(copy);
  source->device->line.Add([source, copy] {
    Pause(*source->device);
    absl::Status status = source->ready->Wait();
    status.Update(Alive(*copy->device));
    if (status.ok()) status = Current()->Call("copy");
    if (status.ok()) copy->value = HostTensor(copy->dtype, copy->dims, source->value.bytes());
    copy->ready->Complete(std::move(status));
  });
  return absl::OkStatus();
}

// --- The table -------------------------------------------------------------------------------------------------------------

// From the arguments' struct to the function's own, with what is the same for all: counting, faults, sizes.
template <typename>
struct ArgumentsOf;
template <typename Arguments>
struct ArgumentsOf<absl::Status(Arguments&)> {
  using Type = Arguments;
};

struct Slot {
  size_t number;
  std::string_view name;
  void* entry;
};

std::string_view NameOf(size_t number);

// Keeps what a function has made and then forgot to write, or it would count as leaked.
template <typename Word>
void Forget(Word* last) {
  static Mutex mutex;
  static std::deque<Word>& forgotten = *new std::deque<Word>;
  MutexLock lock(mutex);
  forgotten.push_back(std::exchange(*last, 0));
}

void WaitWhileNamed(std::vector<std::string> Faults::*list, std::string_view function) {
  while (Faults::Names((*Current()).*list, function)) Sleep(1);
}

template <size_t kNumber, auto& kBody>
api::Error* Entry(void* given) {
  using Arguments = typename ArgumentsOf<std::remove_reference_t<decltype(kBody)>>::Type;
  auto* const args = static_cast<Arguments*>(given);
  const std::string_view name = NameOf(kNumber);
  const auto call = [&]() -> absl::Status {
    ++counts.calls[kNumber];
    // Where a struct ends in padding, others say that it ends before.
    if (args->head.struct_size + alignof(Arguments) <= sizeof(Arguments)) {
      return absl::InvalidArgumentError(absl::StrCat("fake: ", name, " wants a struct of ", sizeof(Arguments), " bytes, not of ", args->head.struct_size));
    }
    const auto faults = Current();
    absl::Status told = faults->Call(name);
    const bool destroys = name.ends_with("_Destroy");
    if (!told.ok() && !destroys) return told;  // otherwise it would leak
    if (Faults::Names(faults->silent, name) && !destroys) {
      if constexpr (std::is_same_v<Arguments, api::EventOnReady>) Forget(reinterpret_cast<uintptr_t*>(&args->user));
      return absl::OkStatus();
    }
    WaitWhileNamed(&Faults::blocking, name);
    try {
      absl::Status status = kBody(*args);
      if (Faults::Names(faults->last_zero, name) && !destroys) Forget(reinterpret_cast<uintptr_t*>(args + 1) - 1);
      return told.ok() ? status : told;
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("fake: no memory");
    }
  };
  absl::Status status = call();
  WaitWhileNamed(&Faults::blocking_after, name);
  return status.ok() ? nullptr : new api::Error{std::move(status)};
}

void ErrorDestroy(void* args) { delete static_cast<api::ErrorDestroy*>(args)->error; }
void ErrorMessage(void* given) {
  auto* const args = static_cast<api::ErrorMessage*>(given);
  if (Faults::Names(Current()->silent, "PJRT_Error_Message")) return;
  args->message = args->error->status.message().data();
  if (Faults::Names(Current()->last_zero, "PJRT_Error_Message")) return;
  args->message_size = args->error->status.message().size();
}
absl::Status ErrorGetCode(api::ErrorGetCode& args) {
  args.code = static_cast<uint32_t>(args.error->status.code());
  return absl::OkStatus();
}

#define WEFT_FAKE(number, name, body) {number, "PJRT_" name, reinterpret_cast<void*>(&Entry<number, body>)}
const Slot kSlots[] = {
    {0, "PJRT_Error_Destroy", reinterpret_cast<void*>(&ErrorDestroy)},
    {1, "PJRT_Error_Message", reinterpret_cast<void*>(&ErrorMessage)},
    WEFT_FAKE(2, "Error_GetCode", ErrorGetCode),
    WEFT_FAKE(3, "Plugin_Initialize", PluginInitialize),
    WEFT_FAKE(4, "Plugin_Attributes", PluginAttributes),
    WEFT_FAKE(5, "Event_Destroy", EventDestroy),
    WEFT_FAKE(6, "Event_IsReady", EventIsReady),
    WEFT_FAKE(7, "Event_Error", EventError),
    WEFT_FAKE(8, "Event_Await", EventAwait),
    WEFT_FAKE(9, "Event_OnReady", EventOnReady),
    WEFT_FAKE(10, "Client_Create", ClientCreate),
    WEFT_FAKE(11, "Client_Destroy", ClientDestroy),
    WEFT_FAKE(12, "Client_PlatformName", ClientPlatformName),
    WEFT_FAKE(13, "Client_ProcessIndex", ClientProcessIndex),
    WEFT_FAKE(14, "Client_PlatformVersion", ClientPlatformVersion),
    WEFT_FAKE(15, "Client_Devices", ClientDevices),
    WEFT_FAKE(16, "Client_AddressableDevices", ClientDevices),
    WEFT_FAKE(20, "Client_Compile", ClientCompile),
    WEFT_FAKE(22, "Client_BufferFromHostBuffer", BufferFromHostBuffer),
    WEFT_FAKE(23, "DeviceDescription_Id", DescriptionId),
    WEFT_FAKE(24, "DeviceDescription_ProcessIndex", DescriptionProcessIndex),
    WEFT_FAKE(25, "DeviceDescription_Attributes", DescriptionAttributes),
    WEFT_FAKE(26, "DeviceDescription_Kind", DescriptionKind),
    WEFT_FAKE(29, "Device_GetDescription", DeviceGetDescription),
    WEFT_FAKE(30, "Device_IsAddressable", DeviceIsAddressable),
    WEFT_FAKE(31, "Device_LocalHardwareId", DeviceLocalHardwareId),
    WEFT_FAKE(34, "Device_MemoryStats", DeviceMemoryStats),
    WEFT_FAKE(40, "Executable_Destroy", ExecutableDestroy),
    WEFT_FAKE(41, "Executable_Name", ExecutableName),
    WEFT_FAKE(42, "Executable_NumReplicas", ExecutableOne),
    WEFT_FAKE(43, "Executable_NumPartitions", ExecutableOne),
    WEFT_FAKE(44, "Executable_NumOutputs", ExecutableNumOutputs),
    WEFT_FAKE(45, "Executable_SizeOfGeneratedCodeInBytes", ExecutableSizeOfGeneratedCode),
    WEFT_FAKE(46, "Executable_GetCostAnalysis", ExecutableGetCostAnalysis),
    WEFT_FAKE(49, "Executable_Serialize", ExecutableSerialize),
    WEFT_FAKE(50, "LoadedExecutable_Destroy", LoadedExecutableDestroy),
    WEFT_FAKE(51, "LoadedExecutable_GetExecutable", LoadedExecutableGetExecutable),
    WEFT_FAKE(52, "LoadedExecutable_AddressableDevices", LoadedExecutableAddressableDevices),
    WEFT_FAKE(55, "LoadedExecutable_Execute", LoadedExecutableExecute),
    WEFT_FAKE(56, "Executable_DeserializeAndLoad", DeserializeAndLoad),
    WEFT_FAKE(58, "Buffer_Destroy", BufferDestroy),
    WEFT_FAKE(59, "Buffer_ElementType", BufferElementType),
    WEFT_FAKE(60, "Buffer_Dimensions", BufferDimensions),
    WEFT_FAKE(64, "Buffer_OnDeviceSizeInBytes", BufferOnDeviceSize),
    WEFT_FAKE(65, "Buffer_Device", BufferDevice),
    WEFT_FAKE(67, "Buffer_Delete", BufferDelete),
    WEFT_FAKE(68, "Buffer_IsDeleted", BufferIsDeleted),
    WEFT_FAKE(69, "Buffer_CopyToDevice", BufferCopyToDevice),
    WEFT_FAKE(70, "Buffer_ToHostBuffer", BufferToHostBuffer),
    WEFT_FAKE(71, "Buffer_IsOnCpu", BufferIsOnCpu),
    WEFT_FAKE(72, "Buffer_ReadyEvent", BufferReadyEvent),
    WEFT_FAKE(82, "TopologyDescription_Create", TopologyCreate),
    WEFT_FAKE(83, "TopologyDescription_Destroy", TopologyDestroy),
    WEFT_FAKE(84, "TopologyDescription_PlatformName", TopologyPlatformName),
    WEFT_FAKE(85, "TopologyDescription_PlatformVersion", TopologyPlatformVersion),
    WEFT_FAKE(86, "TopologyDescription_GetDeviceDescriptions", TopologyGetDeviceDescriptions),
    WEFT_FAKE(89, "Compile", Compile),
    WEFT_FAKE(90, "Executable_OutputElementTypes", ExecutableOutputElementTypes),
    WEFT_FAKE(91, "Executable_OutputDimensions", ExecutableOutputDimensions),
    WEFT_FAKE(95, "Client_TopologyDescription", ClientTopologyDescription),
    WEFT_FAKE(96, "Executable_GetCompiledMemoryStats", ExecutableGetCompiledMemoryStats),
};
#undef WEFT_FAKE

std::string_view NameOf(size_t number) {
  for (const Slot& slot : kSlots) {
    if (slot.number == number) return slot.name;
  }
  return "";
}

// The number of calls of a function, or one of the other counts; -1 if there is no such.
int64_t CountNamed(std::string_view name) {
  if (name == "to_device") return counts.to_device;
  if (name == "from_device") return counts.from_device;
  if (name == "launches") return counts.launches;
  for (const Slot& slot : kSlots) {
    if (slot.name == name) return counts.calls[slot.number];
  }
  return -1;
}

absl::Status ClientDestroy(api::ClientDestroy& args) {
  for (const api::Device* device : args.client->devices) {
    if (!device->line.IsThisThread()) continue;
    std::fputs("fake: a client was destroyed on a thread of its own\n", stderr);
    std::abort();  // other plugins wait for themselves
  }
  delete args.client;
  const char* const path = std::getenv("WEFT_FAKE_COUNTS");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return absl::OkStatus();
  for (const char* name : {"to_device", "from_device", "launches"}) std::fprintf(file, "%s %lld\n", name, static_cast<long long>(CountNamed(name)));
  for (const Slot& slot : kSlots) {
    if (counts.calls[slot.number] > 0) std::fprintf(file, "%s %lld\n", slot.name.data(), static_cast<long long>(counts.calls[slot.number]));
  }
  std::fclose(file);
  return absl::OkStatus();
}

// Types of extensions: 4 is Layouts, of 72 bytes before it had its last function, which here would be the next thing in memory.
struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};
Extension unknown{.struct_size = sizeof(Extension), .type = 4711, .next = nullptr};
struct {
  Extension head{.struct_size = sizeof(Extension) + sizeof(void*), .type = 4, .next = &unknown};
  void* only = nullptr;
  void* behind = reinterpret_cast<void*>(1);
} layouts;

struct Table {
  api::Head head;
  api::Version version;
  void* functions[kFunctions];
};

}  // namespace
}  // namespace weft::pjrt::fake

extern "C" {

__attribute__((visibility("default"))) const weft::pjrt::api::Table* GetPjrtApi() {
  using namespace weft::pjrt;
  static fake::Table table;
  const auto faults = fake::Current();
  table.head.struct_size = offsetof(fake::Table, functions) + static_cast<size_t>(faults->functions) * sizeof(void*);
  table.head.extension_start = fake::ProfilerBefore(faults->extensions ? &fake::layouts : nullptr);
  table.version = {.head = {sizeof(api::Version), nullptr}, .major = static_cast<int>(faults->major), .minor = static_cast<int>(faults->minor)};
  for (const fake::Slot& slot : fake::kSlots) {
    bool there = slot.number < static_cast<size_t>(faults->functions);
    for (const std::string& missing : faults->missing) there = there && missing != slot.name;
    table.functions[slot.number] = there ? slot.entry : nullptr;
  }
  return reinterpret_cast<const api::Table*>(&table);
}

// 0, or -1 if the text is not as above.
__attribute__((visibility("default"))) int WeftFakeSet(const char* text) {
  auto faults = weft::pjrt::fake::Faults::Parse(text);
  if (!faults.ok()) return -1;
  weft::pjrt::fake::Set(*std::move(faults));
  return 0;
}

__attribute__((visibility("default"))) int64_t WeftFakeCount(const char* name) { return weft::pjrt::fake::CountNamed(name); }
}
