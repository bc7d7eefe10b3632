// See plugin.h.
#include "src/backends/pjrt/plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "serialization/checksum.h"
#include "src/runtime/lasting.h"
#include "src/runtime/mutex.h"
#include "src/runtime/thread_pool.h"

namespace weft::pjrt {
namespace {

// What a client cannot do without: the last of them that a table must reach.
constexpr api::Function kLastNeeded = api::Function::kExecutableOutputDimensions;

struct Opened {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<Plugin>> by_path ABSL_GUARDED_BY(mutex);
};

// The bytes of a file, hashed: plugins have versions, but builds of one version differ.
absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return UserErrorOf(absl::StatusCode::kNotFound, "plugin '", path, "' cannot be read: ", std::strerror(errno));
  }
  RunningChecksum sum;
  std::vector<std::byte> block(1 << 20);
  ssize_t got;
  while ((got = read(file, block.data(), block.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) sum.Add({block.data(), static_cast<size_t>(got)});
  }
  const int error = errno;
  close(file);
  if (got < 0)
    return UserErrorOf(absl::StatusCode::kNotFound, "plugin '", path, "' cannot be read: ", std::strerror(error));
  return absl::StrCat(absl::Hex(sum.Value().high, absl::kZeroPad16), absl::Hex(sum.Value().low, absl::kZeroPad16));
}

// Whether this thread is in a function of a plugin's: what it is called back for then, it is called back for as a caller's thread.
thread_local bool tls_calling = false;

struct Pending {
  const Plugin* plugin;
  api::Event* event;
  std::string what;
  Ref<Event> to;
};

}  // namespace

// --- Signals ---------------------------------------------------------------------------------------------------------------

struct KeptSignals::State {
  std::array<struct sigaction, 65> before;
};

KeptSignals::KeptSignals() : state_(std::make_unique<State>()) {
  for (int signal = 1; signal < 65; ++signal) {
    if (sigaction(signal, nullptr, &state_->before[signal]) != 0) state_->before[signal].sa_flags = -1;
  }
}

KeptSignals::~KeptSignals() {
  for (int signal = 1; signal < 65; ++signal) {
    const struct sigaction& before = state_->before[signal];
    // libtpu starts a timer whose signal would end the process.
    if (signal == SIGPROF && before.sa_handler == SIG_DFL) continue;
    if (before.sa_flags != -1) sigaction(signal, &before, nullptr);
  }
}

// --- Calls -----------------------------------------------------------------------------------------------------------------

std::string_view NameOf(api::Function function) {
  using enum api::Function;
  switch (function) {
    case kErrorDestroy: return "PJRT_Error_Destroy";
    case kErrorMessage: return "PJRT_Error_Message";
    case kErrorGetCode: return "PJRT_Error_GetCode";
    case kPluginInitialize: return "PJRT_Plugin_Initialize";
    case kPluginAttributes: return "PJRT_Plugin_Attributes";
    case kEventDestroy: return "PJRT_Event_Destroy";
    case kEventError: return "PJRT_Event_Error";
    case kEventAwait: return "PJRT_Event_Await";
    case kEventOnReady: return "PJRT_Event_OnReady";
    case kClientCreate: return "PJRT_Client_Create";
    case kClientDestroy: return "PJRT_Client_Destroy";
    case kClientPlatformName: return "PJRT_Client_PlatformName";
    case kClientPlatformVersion: return "PJRT_Client_PlatformVersion";
    case kClientAddressableDevices: return "PJRT_Client_AddressableDevices";
    case kClientCompile: return "PJRT_Client_Compile";
    case kClientBufferFromHostBuffer: return "PJRT_Client_BufferFromHostBuffer";
    case kDeviceDescriptionId: return "PJRT_DeviceDescription_Id";
    case kDeviceDescriptionAttributes: return "PJRT_DeviceDescription_Attributes";
    case kDeviceDescriptionKind: return "PJRT_DeviceDescription_Kind";
    case kDeviceGetDescription: return "PJRT_Device_GetDescription";
    case kDeviceMemoryStats: return "PJRT_Device_MemoryStats";
    case kExecutableDestroy: return "PJRT_Executable_Destroy";
    case kExecutableNumOutputs: return "PJRT_Executable_NumOutputs";
    case kExecutableSizeOfGeneratedCode: return "PJRT_Executable_SizeOfGeneratedCodeInBytes";
    case kExecutableGetCostAnalysis: return "PJRT_Executable_GetCostAnalysis";
    case kExecutableSerialize: return "PJRT_Executable_Serialize";
    case kLoadedExecutableDestroy: return "PJRT_LoadedExecutable_Destroy";
    case kLoadedExecutableGetExecutable: return "PJRT_LoadedExecutable_GetExecutable";
    case kLoadedExecutableAddressableDevices: return "PJRT_LoadedExecutable_AddressableDevices";
    case kLoadedExecutableExecute: return "PJRT_LoadedExecutable_Execute";
    case kExecutableDeserializeAndLoad: return "PJRT_Executable_DeserializeAndLoad";
    case kBufferDestroy: return "PJRT_Buffer_Destroy";
    case kBufferIsDeleted: return "PJRT_Buffer_IsDeleted";
    case kBufferToHostBuffer: return "PJRT_Buffer_ToHostBuffer";
    case kBufferReadyEvent: return "PJRT_Buffer_ReadyEvent";
    case kTopologyDescriptionCreate: return "PJRT_TopologyDescription_Create";
    case kTopologyDescriptionDestroy: return "PJRT_TopologyDescription_Destroy";
    case kTopologyDescriptionPlatformName: return "PJRT_TopologyDescription_PlatformName";
    case kTopologyDescriptionPlatformVersion: return "PJRT_TopologyDescription_PlatformVersion";
    case kTopologyDescriptionGetDeviceDescriptions: return "PJRT_TopologyDescription_GetDeviceDescriptions";
    case kCompile: return "PJRT_Compile";
    case kExecutableOutputElementTypes: return "PJRT_Executable_OutputElementTypes";
    case kExecutableOutputDimensions: return "PJRT_Executable_OutputDimensions";
    case kClientTopologyDescription: return "PJRT_Client_TopologyDescription";
    case kExecutableGetCompiledMemoryStats: return "PJRT_Executable_GetCompiledMemoryStats";
  }
  return "a PJRT function";
}

bool Plugin::Has(api::Function function) const {
  const size_t end = offsetof(api::Table, functions) + (static_cast<size_t>(function) + 1) * sizeof(void*);
  return end <= table_->head.struct_size && table_->functions[static_cast<size_t>(function)] != nullptr;
}

absl::Status Plugin::Call(api::Function function, void* arguments) const {
  if (!Has(function)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "plugin '", path_, "' (PJRT ", version_, ") has no ",
                       NameOf(function));
  }
  void* const address = table_->functions[static_cast<size_t>(function)];
  if (function == api::Function::kErrorDestroy || function == api::Function::kErrorMessage) {
    reinterpret_cast<void (*)(void*)>(address)(arguments);
    return absl::OkStatus();
  }
  const bool outer = std::exchange(tls_calling, true);
  api::Error* const error = reinterpret_cast<api::Error* (*)(void*)>(address)(arguments);
  tls_calling = outer;
  return error == nullptr ? absl::OkStatus() : TakeOver(error, NameOf(function));
}

absl::Status Plugin::TakeOver(api::Error* error, std::string_view what) const {
  if (error == nullptr) return absl::OkStatus();
  api::ErrorMessage message{.error = error};
  api::ErrorGetCode code{.error = error};
  Call(api::Function::kErrorMessage, &message).IgnoreError();
  if (!Call(api::Function::kErrorGetCode, &code).ok() || code.code == 0 || code.code > 16) code.code = 2;  // UNKNOWN
  std::string text = absl::StrCat(what, ": ", std::string_view(message.message, message.message_size));
  Destroy(api::Function::kErrorDestroy, api::ErrorDestroy{.error = error});
  return absl::Status(static_cast<absl::StatusCode>(code.code), std::move(text));
}

int64_t Plugin::IdOf(api::DeviceDescription* description, int64_t otherwise) const {
  api::DescriptionNumber id{.description = description};
  return description != nullptr && Call(api::Function::kDeviceDescriptionId, &id).ok() ? id.number : otherwise;
}

absl::Status Plugin::Await(api::Event* event) const {
  if (event == nullptr) return absl::OkStatus();
  api::OfEvent wait{.event = event};
  absl::Status status = Call(api::Function::kEventAwait, &wait);
  Destroy(api::Function::kEventDestroy, api::OfEvent{.event = event});
  return status;
}

void Plugin::Forward(api::Event* event, std::string what, Ref<Event> to) const {
  if (event == nullptr) return to->Complete(absl::OkStatus());
  auto* const pending = new Pending{this, event, std::move(what), to};
  api::EventOnReady ask{.event = event, .user = pending};
  ask.callback = [](api::Error* error, void* user) {
    const std::unique_ptr<Pending> mine(static_cast<Pending*>(user));
    if (!tls_calling) MarkLibraryThread();
    absl::Status outcome = mine->plugin->TakeOver(error, mine->what);
    mine->plugin->Destroy(api::Function::kEventDestroy, api::OfEvent{.event = mine->event});
    mine->to->Complete(std::move(outcome));
  };
  if (Call(api::Function::kEventOnReady, &ask).ok()) return;
  delete pending;
  to->Complete(Await(event));  // nobody would have called
}

// --- Opening ---------------------------------------------------------------------------------------------------------------

absl::StatusOr<const Plugin*> Plugin::Open(const std::string& path) {
  static Lasting<Opened> opened;
  std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) {
    return UserErrorOf(absl::StatusCode::kNotFound, "plugin '", path, "' cannot be opened: ", std::strerror(errno));
  }
  Opened& all = opened.Get();
  MutexLock lock(all.mutex);
  std::unique_ptr<Plugin>& plugin = all.by_path[real.get()];
  if (plugin == nullptr) {
    std::unique_ptr<Plugin> fresh(new Plugin);
    if (absl::Status status = fresh->Initialize(real.get()); !status.ok()) {
      all.by_path.erase(real.get());
      return status;
    }
    plugin = std::move(fresh);
  }
  return plugin.get();
}

absl::Status Plugin::Initialize(const std::string& path) {
  path_ = path;
  WEFT_ASSIGN_OR_RETURN(identity_, HashOfFile(path));
  const KeptSignals signals;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return UserError("plugin '", path, "' cannot be loaded: ", dlerror());
  const auto get = reinterpret_cast<const api::Table* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get == nullptr) {
    dlclose(library);
    return UserError("'", path, "' is no PJRT plugin: it has no function GetPjrtApi");
  }
  table_ = get();
  if (table_ == nullptr) return UserError("plugin '", path, "': GetPjrtApi gave nothing");
  version_ = absl::StrCat(table_->version.major, ".", table_->version.minor);
  if (table_->version.major != 0) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "plugin '", path, "' speaks PJRT ", version_,
                       "; this library speaks 0.x");
  }
  if (!Has(kLastNeeded)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "plugin '", path, "' speaks PJRT ", version_,
                       ", which is too old: it has no ", NameOf(kLastNeeded));
  }
  api::PluginInitialize initialize;
  if (absl::Status status = Call(api::Function::kPluginInitialize, &initialize); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("plugin '", path, "' could not be initialised: ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace weft::pjrt
