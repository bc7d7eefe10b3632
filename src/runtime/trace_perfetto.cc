// A trace as messages of Perfetto: the wire format of Protocol Buffers, of the few fields that are needed.
#include <map>
#include <utility>

#include "src/runtime/trace_render.h"

namespace weft {
namespace {

// Fields of the messages, by their numbers (protos/perfetto/trace).
namespace field {
constexpr int kPacket = 1;                                                                            // Trace
constexpr int kTimestamp = 8, kSequence = 10, kEvent = 11, kInterned = 12, kFlags = 13, kTrack = 60;  // TracePacket
constexpr int kUuid = 1, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8, kTrackName = 2;        // TrackDescriptor
constexpr int kProcessPid = 1, kProcessName = 6;                                                  // ProcessDescriptor
constexpr int kThreadPid = 1, kThreadTid = 2, kThreadName = 5;                                    // ThreadDescriptor
constexpr int kCategory = 3, kAnnotation = 4, kType = 9, kName = 10, kOfTrack = 11, kValue = 30;  // TrackEvent
constexpr int kFlow = 47, kLastOfFlow = 48;                                                       // TrackEvent
constexpr int kCategories = 1, kNames = 2;                                                        // InternedData
constexpr int kNumber = 1, kText = 2;                                         // EventName, EventCategory
constexpr int kAnnotationInt = 4, kAnnotationText = 6, kAnnotationName = 10;  // DebugAnnotation
}  // namespace field
enum Type : uint8_t { kBegin = 1, kEnd = 2, kCounterValue = 4 };
// Sequence flags: what was interned before holds no more; and: what follows reads it.
constexpr uint64_t kCleared = 1, kReads = 2;
constexpr uint64_t kProcessTrack = 1, kFirstCounterTrack = 1'000'000, kPid = 1;

class Message {
 public:
  void Add(int number, uint64_t value) {
    Varint(static_cast<uint64_t>(number) << 3);
    Varint(value);
  }
  void Add(int number, std::string_view bytes) {
    Varint(static_cast<uint64_t>(number) << 3 | 2);
    Varint(bytes.size());
    bytes_.append(bytes);
  }
  void AddFixed64(int number, uint64_t value) {
    Varint(static_cast<uint64_t>(number) << 3 | 1);
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> 8 * i);
  }
  void Add(int number, const Message& message) { Add(number, std::string_view(message.bytes_)); }
  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

class Writer {
 public:
  explicit Writer(const TraceRecord& record) : record_(record) {}
  std::string Take() {
    Message process, track, packet;
    process.Add(field::kProcessPid, kPid);
    process.Add(field::kProcessName, "weft");
    track.Add(field::kUuid, kProcessTrack);
    track.Add(field::kProcess, process);
    packet.Add(field::kTrack, track);
    packet.Add(field::kFlags, kCleared);
    Put(packet);
    for (uint32_t t = 0; t < record_.threads.size(); ++t) Thread(t);
    return out_.bytes();
  }

 private:
  void Put(Message& packet) {
    packet.Add(field::kSequence, 1);
    out_.Add(field::kPacket, packet);
  }
  void Thread(uint32_t t) {
    const uint64_t uuid = kProcessTrack + 1 + t;
    Message thread, track, packet;
    thread.Add(field::kThreadPid, kPid);
    thread.Add(field::kThreadTid, static_cast<uint64_t>(record_.threads[t].number));
    thread.Add(field::kThreadName, Utf8Of(record_.threads[t].name));
    track.Add(field::kUuid, uuid);
    track.Add(field::kParent, kProcessTrack);
    track.Add(field::kThread, thread);
    packet.Add(field::kTrack, track);
    Put(packet);
    std::vector<int64_t> ends;
    for (const TraceSpan& span : Nested(record_, t)) {
      if (span.name->kind == SpanKind::kCounter) {
        Value(span);
        continue;
      }
      for (; !ends.empty() && ends.back() <= span.start; ends.pop_back()) End(uuid, ends.back());
      Begin(uuid, span);
      ends.push_back(span.end);
    }
    for (; !ends.empty(); ends.pop_back()) End(uuid, ends.back());
  }
  void Begin(uint64_t uuid, const TraceSpan& span) {
    Message event;
    event.Add(field::kType, kBegin);
    event.Add(field::kOfTrack, uuid);
    Message interned;
    bool news = false;
    const auto number = [&](auto& known, const auto& key, int kind, std::string_view text) {
      const auto [at, fresh] = known.try_emplace(key, known.size() + 1);
      if (fresh) {
        Message entry;
        entry.Add(field::kNumber, at->second);
        entry.Add(field::kText, Utf8Of(text));
        interned.Add(kind, entry);
        news = true;
      }
      return at->second;
    };
    event.Add(field::kCategory, number(categories_, span.name->kind, field::kCategories, NameOf(span.name->kind)));
    event.Add(field::kName, number(names_, span.name->text, field::kNames, span.name->text));
    Annotate(*span.name, &event);
    if (const FlowEnd flow = FlowEndOf(span); flow != FlowEnd::kNone) {
      event.AddFixed64(flow == FlowEnd::kFrom ? field::kFlow : field::kLastOfFlow,
                       static_cast<uint64_t>(span.argument));
    }
    Event(span.start, event, news ? &interned : nullptr);
  }
  static void Annotate(const SpanName& name, Message* event) {
    const auto add = [&](std::string_view key, int kind, const auto& value) {
      Message annotation;
      annotation.Add(field::kAnnotationName, key);
      annotation.Add(kind, value);
      event->Add(field::kAnnotation, annotation);
    };
    if (!name.implementation.empty()) add("implementation", field::kAnnotationText, Utf8Of(name.implementation));
    if (!name.where.empty()) add("where", field::kAnnotationText, Utf8Of(name.where));
    const std::pair<std::string_view, int64_t> numbers[] = {
        {"flops", name.flops}, {"bytes_read", name.bytes_read}, {"bytes_written", name.bytes_written}};
    for (const auto& [key, value] : numbers) {
      if (value >= 0) add(key, field::kAnnotationInt, static_cast<uint64_t>(value));
    }
  }
  void End(uint64_t uuid, int64_t time) {
    Message event;
    event.Add(field::kType, kEnd);
    event.Add(field::kOfTrack, uuid);
    Event(time, event, nullptr);
  }
  void Value(const TraceSpan& span) {
    const auto [at, fresh] = counters_.try_emplace(span.name->text, kFirstCounterTrack + counters_.size());
    if (fresh) {
      Message track, packet;
      track.Add(field::kUuid, at->second);
      track.Add(field::kTrackName, Utf8Of(span.name->text));
      track.Add(field::kParent, kProcessTrack);
      track.Add(field::kCounter, Message());
      packet.Add(field::kTrack, track);
      Put(packet);
    }
    Message event;
    event.Add(field::kType, kCounterValue);
    event.Add(field::kOfTrack, at->second);
    event.Add(field::kValue, static_cast<uint64_t>(span.argument));
    Event(span.start, event, nullptr);
  }
  void Event(int64_t time, const Message& event, const Message* interned) {
    Message packet;
    packet.Add(field::kTimestamp, static_cast<uint64_t>(time));
    packet.Add(field::kFlags, kReads);
    packet.Add(field::kEvent, event);
    if (interned != nullptr) packet.Add(field::kInterned, *interned);
    Put(packet);
  }

  const TraceRecord& record_;
  Message out_;
  std::map<SpanKind, uint64_t> categories_;
  std::map<std::string_view, uint64_t> names_, counters_;
};

}  // namespace

std::string PerfettoOf(const TraceRecord& record) { return Writer(record).Take(); }

}  // namespace weft
