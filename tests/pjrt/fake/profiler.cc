// See profiler.h. Shares no struct with the client's: written down from OpenXLA's header once more.
#include "tests/pjrt/fake/profiler.h"

#include <ctime>
#include <string>
#include <vector>

#include "src/runtime/mutex.h"
#include "tests/pjrt/fake/faults.h"

namespace weft::pjrt::fake {
namespace {

struct Launched {
  int64_t device, begin, end;
};
Mutex mutex;
bool noting ABSL_GUARDED_BY(mutex) = false;
std::vector<Launched> launched ABSL_GUARDED_BY(mutex);

struct Error {
  std::string text;
};
struct ErrorArgs {
  size_t struct_size;
  void* priv;
  Error* error;
};
struct MessageArgs {
  size_t struct_size;
  void* priv;
  const Error* error;
  const char* message;
  size_t message_size;
};
struct CodeArgs {
  size_t struct_size;
  void* priv;
  const Error* error;
  int code;
};
struct Profiler {
  std::string bytes;
};
struct CreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  Profiler* profiler;
};
struct ProfilerArgs {
  size_t struct_size;
  Profiler* profiler;
};
struct CollectArgs {
  size_t struct_size;
  Profiler* profiler;
  size_t buffer_size_in_bytes;
  uint8_t* buffer;
};

void ErrorDestroy(ErrorArgs* args) { delete args->error; }
void ErrorMessage(MessageArgs* args) { args->message = args->error->text.data(), args->message_size = args->error->text.size(); }
Error* ErrorCode(CodeArgs* args) {
  args->code = 13;
  return nullptr;
}
Error* Told(const char* function) {
  const absl::Status told = Current()->Call(function);
  return told.ok() ? nullptr : new Error{std::string(told.message())};
}

Error* Create(CreateArgs* args) {
  if (Error* const told = Told("PLUGIN_Profiler_Create")) return told;
  args->profiler = new Profiler();
  return nullptr;
}
Error* Destroy(ProfilerArgs* args) {
  delete args->profiler;
  MutexLock lock(mutex);
  noting = false;
  return nullptr;
}
Error* Start(ProfilerArgs*) {
  if (Error* const told = Told("PLUGIN_Profiler_Start")) return told;
  MutexLock lock(mutex);
  noting = true;
  launched.clear();
  return nullptr;
}
Error* Stop(ProfilerArgs*) {
  MutexLock lock(mutex);
  noting = false;
  return Told("PLUGIN_Profiler_Stop");
}

// --- The message ------------------------------------------------------------------------------------------------------------

std::string Varint(uint64_t x) {
  std::string out;
  for (; x >= 0x80; x >>= 7) out += static_cast<char>(x | 0x80);
  return out + static_cast<char>(x);
}
std::string Number(int field, int64_t x) { return Varint(static_cast<uint64_t>(field) << 3) + Varint(static_cast<uint64_t>(x)); }
std::string Bytes(int field, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(bytes.size()) + bytes;
}

// A plane a device with a line of its launches, whose events are called fusion.7.
std::string Space() {
  MutexLock lock(mutex);
  std::string space;
  for (int64_t device = 0; device < 2; ++device) {
    int64_t first = 0;
    std::string events;
    for (const Launched& one : launched) {
      if (one.device != device) continue;
      if (first == 0) first = one.begin;
      events += Bytes(4, Number(1, 42) + Number(2, (one.begin - first) * 1000) + Number(3, (one.end - one.begin) * 1000));
    }
    if (first == 0) continue;
    const std::string line = Number(1, 7) + Bytes(2, "XLA Ops") + Number(3, first) + events;
    const std::string metadata = Number(1, 42) + Bytes(2, Number(1, 42).append(Bytes(2, "fusion.7")));
    space += Bytes(1, Number(1, device) + Bytes(2, "/device:FAKE:" + std::to_string(device)) + Bytes(3, line) + Bytes(4, metadata));
  }
  return space;
}

Error* CollectData(CollectArgs* args) {
  if (Error* const told = Told("PLUGIN_Profiler_CollectData")) return told;
  args->profiler->bytes = Space();
  for (const std::string& silent : Current()->silent) {
    if (silent == "PLUGIN_Profiler_CollectData") args->profiler->bytes = "\x0a\x7f damaged";
  }
  args->buffer = reinterpret_cast<uint8_t*>(args->profiler->bytes.data());
  args->buffer_size_in_bytes = args->profiler->bytes.size();
  return nullptr;
}

struct Api {
  size_t struct_size = sizeof(Api);
  void* priv = nullptr;
  void (*error_destroy)(ErrorArgs*) = ErrorDestroy;
  void (*error_message)(MessageArgs*) = ErrorMessage;
  Error* (*error_get_code)(CodeArgs*) = ErrorCode;
  Error* (*create)(CreateArgs*) = Create;
  Error* (*destroy)(ProfilerArgs*) = Destroy;
  Error* (*start)(ProfilerArgs*) = Start;
  Error* (*stop)(ProfilerArgs*) = Stop;
  Error* (*collect_data)(CollectArgs*) = CollectData;
} api_table;

struct {
  size_t struct_size = 40;
  int type = 1;
  void* next = nullptr;
  Api* profiler_api = &api_table;
  int64_t traceme_context_id = 0;
} extension;

}  // namespace

void* ProfilerBefore(void* next) {
  extension.next = next;
  return &extension;
}

void NoteLaunch(int64_t device, int64_t begin, int64_t end) {
  MutexLock lock(mutex);
  if (noting) launched.push_back({device, begin, end});
}

int64_t RealtimeNow() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

}  // namespace weft::pjrt::fake
