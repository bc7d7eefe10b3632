// See profiler.h.
#include "src/backends/pjrt/profiler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/backends/pjrt/fields.h"
#include "src/runtime/status.h"

namespace weft::pjrt {
namespace {

// PJRT_Profiler_Extension, number 1 of the extensions, and the table that it points to: functions that take a pointer to their
// arguments' struct and return an error of their own kind, or null.
constexpr int kProfiler = 1;
struct ProfilerTable {
  size_t struct_size = 0;
  void* priv = nullptr;
  void *error_destroy, *error_message, *error_code, *create, *destroy, *start, *stop, *collect;
};
struct Extension {
  api::Extension base;
  const ProfilerTable* table = nullptr;  // null: the extension is there for the arguments of calls alone
  int64_t context = 0;
};
static_assert(sizeof(Extension) == 40 && sizeof(ProfilerTable) == 80);

struct OfError {
  size_t struct_size = sizeof(OfError);
  void* priv = nullptr;
  void* error = nullptr;
};
struct Message {
  size_t struct_size = sizeof(Message);
  void* priv = nullptr;
  const void* error = nullptr;
  const char* text = nullptr;
  size_t size = 0;
};
struct Create {
  size_t struct_size = sizeof(Create);
  const char* options = nullptr;
  size_t options_size = 0;
  void* profiler = nullptr;
};
struct OfProfiler {
  size_t struct_size = sizeof(OfProfiler);
  void* profiler = nullptr;
};
struct Collect {
  size_t struct_size = sizeof(Collect);
  void* profiler = nullptr;
  size_t size = 0;
  unsigned char* bytes = nullptr;
};

// tensorflow.ProfileOptions: version 1, whose zeros are meant; devices are noted, hosts not, since Weft has lanes of its own.
constexpr std::string_view kOptions("\x10\x00\x18\x01\x28\x01", 6);
constexpr size_t kMostSpans = size_t{1} << 20;

class Profiler final : public TraceSource {
 public:
  Profiler(const ProfilerTable& table, LogHook log) : table_(table), log_(std::move(log)) {}
  ~Profiler() override { Destroy(); }

  void Start() override {
    Destroy();
    Create create{.options = kOptions.data(), .options_size = kOptions.size()};
    if (!Call(table_.create, "PLUGIN_Profiler_Create", &create)) return;
    profiler_ = create.profiler;
    OfProfiler start{.profiler = profiler_};
    if (!Call(table_.start, "PLUGIN_Profiler_Start", &start)) Destroy();
  }

  TraceRecord Stop() override {
    if (profiler_ == nullptr) return {};
    TraceRecord record = Collected();
    Destroy();
    return record;
  }

 private:
  TraceRecord Collected() const {
    OfProfiler stop{.profiler = profiler_};
    if (!Call(table_.stop, "PLUGIN_Profiler_Stop", &stop)) return {};
    // A plugin gives its own memory, or says how much it needs.
    Collect collect{.profiler = profiler_};
    if (!Call(table_.collect, kCollect, &collect)) return {};
    std::vector<unsigned char> own;
    if (collect.bytes == nullptr && collect.size > 0) {
      own.resize(collect.size);
      collect.bytes = own.data();
      if (!Call(table_.collect, kCollect, &collect)) return {};
    }
    const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
    const std::string_view bytes(reinterpret_cast<const char*>(collect.bytes), collect.size);
    absl::StatusOr<TraceRecord> record = ReadXSpace(bytes, MonotonicNow() - now.count());
    if (!record.ok()) Warn(record.status().message());
    return record.ok() ? *std::move(record) : TraceRecord();
  }

  void Destroy() {
    if (profiler_ == nullptr) return;
    OfProfiler destroy{.profiler = std::exchange(profiler_, nullptr)};
    Call(table_.destroy, "PLUGIN_Profiler_Destroy", &destroy);
  }

  bool Call(void* function, std::string_view name, void* arguments) const {
    if (function == nullptr) {
      Warn(absl::StrCat("it has no ", name));
      return false;
    }
    void* const error = reinterpret_cast<void* (*)(void*)>(function)(arguments);
    if (error == nullptr) return true;
    Message message{.error = error};
    if (table_.error_message != nullptr) reinterpret_cast<void (*)(void*)>(table_.error_message)(&message);
    Warn(absl::StrCat(name, ": ", std::string_view(message.text == nullptr ? "" : message.text, message.size)));
    OfError gone{.error = error};
    if (table_.error_destroy != nullptr) reinterpret_cast<void (*)(void*)>(table_.error_destroy)(&gone);
    return false;
  }

  void Warn(std::string_view text) const {
    if (!log_.Wants(LogLevel::kWarning)) return;
    log_.write(LogLevel::kWarning, absl::StrCat("the trace is without what the plugin's profiler has: ", text));
  }

  static constexpr std::string_view kCollect = "PLUGIN_Profiler_CollectData";
  const ProfilerTable& table_;
  const LogHook log_;
  void* profiler_ = nullptr;
};

// --- tensorflow.profiler.XSpace: planes of lines of events, whose names stand beside the lines ----------------------------------

using Names = std::map<int64_t, std::string>;

// An entry of XPlane.event_metadata: 1 the number, 2 XEventMetadata with 2 the name and 4 the name to be shown.
bool ReadName(std::string_view bytes, Names* names) {
  Fields entry(bytes);
  int64_t number = 0;
  std::string name, shown;
  while (entry.Next()) {
    if (entry.number() == 1) number = entry.value();
    if (entry.number() != 2) continue;
    Fields metadata(entry.content());
    while (metadata.Next()) {
      if (metadata.number() == 2) name = metadata.content();
      if (metadata.number() == 4) shown = metadata.content();
    }
    // Fields behind the names may be of kinds that are not read.
  }
  (*names)[number] = shown.empty() ? name : shown;
  return entry.ok();
}

// XLine: 2 the name, 11 the name to be shown, 3 nanoseconds where it begins, 4 XEvents of 1 the name's number, 2 picoseconds from there,
// 3 picoseconds that it took.
bool ReadLine(std::string_view bytes, std::string_view plane, const Names& names, int64_t shift, TraceRecord* record) {
  std::string name, shown;
  int64_t begin = 0;
  std::vector<std::string_view> events;
  Fields line(bytes);
  while (line.Next()) {
    if (line.number() == 2) name = line.content();
    if (line.number() == 11) shown = line.content();
    if (line.number() == 3) begin = line.value();
    if (line.number() == 4) events.push_back(line.content());
  }
  if (!line.ok() || events.empty()) return line.ok();
  const bool operations =
      absl::StartsWith(plane, "/device:") && (name == "XLA Ops" || absl::StartsWith(name, "Stream"));
  const SpanKind kind = operations ? SpanKind::kKernel : SpanKind::kUser;
  const auto thread = static_cast<uint32_t>(record->threads.size());
  const size_t first = record->spans.size();
  record->threads.push_back({absl::StrCat(plane, " ", shown.empty() ? name : shown), thread});
  for (const std::string_view one : events) {
    int64_t number = 0, offset = 0, took = 0;
    Fields event(one);
    while (event.Next()) {
      if (event.number() == 1) number = event.value();
      if (event.number() == 2) offset = event.value();
      if (event.number() == 3) took = event.value();
    }
    if (!event.ok()) return false;
    if (record->spans.size() >= kMostSpans) {
      ++record->lost;
      continue;
    }
    const auto known = names.find(number);
    const std::string_view text = known == names.end() ? std::string_view("?") : known->second;
    // Unsigned: what nobody means must not overflow.
    const uint64_t later =
        static_cast<uint64_t>(begin) + static_cast<uint64_t>(offset / 1000) + static_cast<uint64_t>(shift);
    const auto start = static_cast<int64_t>(later);
    const auto end = static_cast<int64_t>(later + static_cast<uint64_t>(std::max<int64_t>(took, 0) / 1000));
    record->spans.push_back({InternSpanName({.text = text, .kind = kind}), start, std::max(start, end), 0, thread});
  }
  SortSpans(std::span(record->spans).subspan(first));
  return true;
}

// XPlane: 2 the name, 3 XLines, 4 the names of events.
bool ReadPlane(std::string_view bytes, int64_t shift, TraceRecord* record) {
  std::string name;
  Names names;
  std::vector<std::string_view> lines;
  Fields plane(bytes);
  bool ok = true;
  while (plane.Next()) {
    if (plane.number() == 2) name = plane.content();
    if (plane.number() == 3) lines.push_back(plane.content());
    if (plane.number() == 4) ok = ReadName(plane.content(), &names) && ok;
  }
  for (const std::string_view line : lines) ok = ReadLine(line, name, names, shift, record) && ok;
  return ok && plane.ok();
}

}  // namespace

std::unique_ptr<TraceSource> NewProfiler(const Plugin& plugin, LogHook log) {
  const auto* const extension = static_cast<const Extension*>(plugin.FindExtension(kProfiler, sizeof(Extension)));
  const bool there =
      extension != nullptr && extension->table != nullptr && extension->table->struct_size >= sizeof(ProfilerTable);
  return there ? std::make_unique<Profiler>(*extension->table, std::move(log)) : nullptr;
}

absl::StatusOr<TraceRecord> ReadXSpace(std::string_view bytes, int64_t shift) {
  TraceRecord record;
  Fields space(bytes);
  bool ok = true;
  while (space.Next()) {
    if (space.number() == 1) ok = ReadPlane(space.content(), shift, &record) && ok;
  }
  if (!ok || !space.ok()) return InternalError("what it gave is no XSpace");
  return record;
}

}  // namespace weft::pjrt
