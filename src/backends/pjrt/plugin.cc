// See plugin.h.
#include "src/backends/pjrt/plugin.h"

#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "serialization/checksum.h"
#include "src/backends/pjrt/aside.h"
#include "src/runtime/io.h"
#include "src/runtime/lasting.h"
#include "src/runtime/library_file.h"
#include "src/runtime/mutex.h"
#include "src/runtime/thread_pool.h"

namespace weft::pjrt {
namespace {

// The last function that a client needs: a plugin's table must reach it.
constexpr api::Function kLastNeeded = api::Function::kExecutableOutputDimensions;

// A plugin that is being opened or has been.
struct Start {
  std::unique_ptr<const Plugin> plugin;  // written before `done` is
  const Ref<Event> done = MakeRef<Event>();
};

struct Opened {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Start>> by_path ABSL_GUARDED_BY(mutex);
};

Opened& AllOpened() {
  static Lasting<Opened> opened;
  return opened.Get();
}

// Says how a start has ended, whether or not anybody still waits for it. One that has failed may be tried again.
class Opening {
 public:
  Opening(std::shared_ptr<Start> start, std::string path) : start_(std::move(start)), path_(std::move(path)) {}
  ~Opening() {
    if (!outcome.ok()) {
      Opened& all = AllOpened();
      MutexLock lock(all.mutex);
      all.by_path.erase(path_);
    }
    start_->done->Complete(outcome);
  }
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

  const std::string& path() const { return path_; }
  void Opens(std::unique_ptr<const Plugin> plugin) { start_->plugin = std::move(plugin); }

  absl::Status outcome = absl::UnavailableError("the plugin was not opened");

 private:
  const std::shared_ptr<Start> start_;
  const std::string path_;
};

// The bytes of a file, hashed: plugins have versions, but builds of one version differ.
absl::StatusOr<std::string> HashOfFile(const File& file, int64_t size) {
  RunningChecksum sum;
  std::vector<std::byte> block(1 << 20);
  for (int64_t at = 0; at < size; at += static_cast<int64_t>(block.size())) {
    block.resize(static_cast<size_t>(std::min<int64_t>(size - at, 1 << 20)));
    WEFT_RETURN_IF_ERROR(file.ReadAt(at, block));
    sum.Add(block);
  }
  return absl::StrCat(absl::Hex(sum.Value().high, absl::kZeroPad16), absl::Hex(sum.Value().low, absl::kZeroPad16));
}

// Tells whether this thread is in a function of a plugin's. The plugin's callbacks on it then run as on a caller's
// thread.
thread_local bool tls_calling = false;

struct Pending {
  const Plugin* plugin;
  api::Event* event;
  std::string what;
  Ref<Event> to;
};

}  // namespace

// --- Signals ---------------------------------------------------------------------------------------------------------------

namespace {

struct Handlers {
  Mutex mutex;
  int kept ABSL_GUARDED_BY(mutex) = 0;
  std::array<struct sigaction, 65> before ABSL_GUARDED_BY(mutex);
};

Handlers& TheHandlers() {
  static Lasting<Handlers> handlers;
  return handlers.Get();
}

}  // namespace

KeptSignals::KeptSignals() {
  Handlers& its = TheHandlers();
  MutexLock lock(its.mutex);
  if (its.kept++ > 0) return;
  for (int signal = 1; signal < 65; ++signal) {
    if (sigaction(signal, nullptr, &its.before[signal]) != 0) its.before[signal].sa_flags = -1;
  }
}

KeptSignals::~KeptSignals() {
  Handlers& its = TheHandlers();
  MutexLock lock(its.mutex);
  if (--its.kept > 0) return;
  for (int signal = 1; signal < 65; ++signal) {
    const struct sigaction& before = its.before[signal];
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
    case kBufferCopyToDevice: return "PJRT_Buffer_CopyToDevice";
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
    case kBufferCopyRawToHost: return "PJRT_Buffer_CopyRawToHost";
  }
  return "a PJRT function";
}

bool Plugin::Has(api::Function function) const {
  const size_t end = offsetof(api::Table, functions) + (static_cast<size_t>(function) + 1) * sizeof(void*);
  return end <= table_->head.struct_size && table_->functions[static_cast<size_t>(function)] != nullptr;
}

const void* Plugin::FindExtension(int type, size_t size) const {
  const auto* extension = static_cast<const api::Extension*>(table_->head.extension_start);
  while (extension != nullptr && (extension->type != type || extension->struct_size < size))
    extension = extension->next;
  return extension;
}

api::Error* Plugin::Enter(api::Function function, void* arguments) const {
  void* const address = table_->functions[static_cast<size_t>(function)];
  if (LastCall* const noted = CallsNotedIn()) noted->store(NameOf(function).data(), std::memory_order_relaxed);
  if (function == api::Function::kErrorDestroy || function == api::Function::kErrorMessage) {
    reinterpret_cast<void (*)(void*)>(address)(arguments);
    return nullptr;
  }
  return Enter(address, arguments);
}

api::Error* Plugin::Enter(void* address, void* arguments) {
  const bool outer = std::exchange(tls_calling, true);
  api::Error* const error = reinterpret_cast<api::Error* (*)(void*)>(address)(arguments);
  tls_calling = outer;
  return error;
}

absl::Status Plugin::CallOfExtension(void* function, const char* name, void* arguments) const {
  if (LastCall* const noted = CallsNotedIn()) noted->store(name, std::memory_order_relaxed);
  return TakeOver(Enter(function, arguments), name);
}

absl::Status Plugin::Call(api::Function function, void* arguments) const {
  if (!Has(function)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "plugin '", path_, "' (PJRT ", version_, ") has no ",
                       NameOf(function));
  }
  return TakeOver(Enter(function, arguments), NameOf(function));
}

absl::Status Plugin::NotWritten(api::Function function, std::string_view what) const {
  return UserErrorOf(absl::StatusCode::kInternal, "plugin '", path_, "': ", NameOf(function),
                     " answered success and wrote no ", what);
}

absl::Status Plugin::TakeOver(api::Error* error, std::string_view what) const {
  if (error == nullptr) return absl::OkStatus();
  api::ErrorMessage message{.error = error};
  const bool said = Call(api::Function::kErrorMessage, &message).ok();
  const std::string_view text = said ? std::string_view(message.message, message.message_size) : "";
  absl::Status status(CodeOf(error), absl::StrCat(what, ": ", text.empty() ? "failed and did not say why" : text));
  Destroy(api::Function::kErrorDestroy, api::ErrorDestroy{.error = error});
  return RetryAfterRelease(std::move(status));
}

// UNKNOWN where the plugin has no code that we know, INTERNAL where it fails to say one: an error of that is not asked for its own.
absl::StatusCode Plugin::CodeOf(const api::Error* error) const {
  api::ErrorGetCode code{.head = {sizeof(code), nullptr}, .error = error};
  if (!Has(api::Function::kErrorGetCode)) return absl::StatusCode::kUnknown;
  api::Error* const failed = Enter(api::Function::kErrorGetCode, &code);
  if (failed != nullptr && failed != error) {
    Destroy(api::Function::kErrorDestroy, api::ErrorDestroy{.error = failed});
  }
  if (failed != nullptr || code.code == 0) return absl::StatusCode::kInternal;
  return code.code > 16 ? absl::StatusCode::kUnknown : static_cast<absl::StatusCode>(code.code);
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

void Plugin::ForwardReady(api::Buffer* buffer, std::string what, Ref<Event> to) const {
  api::ReadyEvent ready{.buffer = buffer};
  if (absl::Status asked = Call(api::Function::kBufferReadyEvent, &ready); !asked.ok())
    return to->Complete(std::move(asked));
  Forward(ready.event, std::move(what), std::move(to));
}

// --- Opening ---------------------------------------------------------------------------------------------------------------

absl::StatusOr<const Plugin*> Plugin::Open(const std::string& path, int64_t start_deadline_ms) {
  std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) {
    return UserErrorOf(absl::StatusCode::kNotFound, "plugin '", path, "' cannot be opened: ", std::strerror(errno));
  }
  std::shared_ptr<Start> start;
  std::shared_ptr<Opening> opening;
  {
    Opened& all = AllOpened();
    MutexLock lock(all.mutex);
    std::shared_ptr<Start>& known = all.by_path[real.get()];
    if (known == nullptr) {
      known = std::make_shared<Start>();
      opening = std::make_shared<Opening>(known, real.get());
    }
    start = known;
  }
  if (!start->done->done()) {
    const KeptSignals signals;
    const std::string what = absl::StrCat("plugin '", real.get(), "'");
    if (opening != nullptr) {
      const auto open = [opening = std::move(opening)] {
        std::unique_ptr<Plugin> fresh(new Plugin);
        opening->outcome = fresh->Initialize(opening->path());
        if (opening->outcome.ok()) opening->Opens(std::move(fresh));
      };
      WEFT_RETURN_IF_ERROR(StartInTime(start_deadline_ms, what, open));
    } else if (!start->done->WaitDone(start_deadline_ms == 0 ? -1 : InNanoseconds(start_deadline_ms))) {
      return NotStarted(start_deadline_ms, what, nullptr);
    }
  }
  WEFT_RETURN_IF_ERROR(start->done->Wait());
  return start->plugin.get();
}

absl::Status Plugin::Initialize(const std::string& path) {
  path_ = path;
  {
    FileInfo info;
    WEFT_ASSIGN_OR_RETURN(const File file, OpenLibrary(PosixFileSystem(), path, "plugin", &info));
    WEFT_ASSIGN_OR_RETURN(identity_, HashOfFile(file, info.size));
  }
  if (LastCall* const noted = CallsNotedIn()) noted->store("dlopen", std::memory_order_relaxed);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return UserError("plugin '", path, "' cannot be loaded: ", dlerror());
  const auto get = reinterpret_cast<const api::Table* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get == nullptr) {
    dlclose(library);
    return UserError("'", path, "' is no PJRT plugin: it has no function GetPjrtApi");
  }
  table_ = get();
  if (table_ == nullptr || table_->head.struct_size < offsetof(api::Table, functions)) {
    return UserErrorOf(absl::StatusCode::kInternal, "plugin '", path, "': GetPjrtApi gave ",
                       table_ == nullptr ? "nothing" : "a table that ends before its functions");
  }
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
