// Spans of time: what a thread did, from when to when. Off, which they are unless somebody starts them, a span costs one load.
// A context's trace has the number of its metrics, by which whoever has either finds it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "src/runtime/clock.h"
#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace weft {

// The category of a span in a file.
enum class SpanKind : uint8_t { kCaller, kCompile, kLaunch, kKernel, kShare, kFile, kUser, kCounter, kCount };
std::string_view NameOf(SpanKind kind);

// The part that equal spans share. It lives as long as the process: a constant, or one that InternSpanName gives.
struct SpanName {
  std::string_view text;
  SpanKind kind = SpanKind::kCaller;
  // Kernels have an implementation, the position of their operations, and the work of one run; -1: not known.
  std::string_view implementation = "", where = "";
  int64_t flops = -1, bytes_read = -1, bytes_written = -1;
};
// Backends use these two.
inline constexpr SpanName kCompileSpan{.text = "compile", .kind = SpanKind::kCompile};
inline constexpr SpanName kRunSpan{.text = "run", .kind = SpanKind::kLaunch};
// The one name that is equal. A process keeps 65,536; from then on a kind has one name, "(more)", for all that are new.
const SpanName* InternSpanName(const SpanName& name);

// --- What a trace gives -----------------------------------------------------------------------------------------------
struct TraceSpan {
  const SpanName* name = nullptr;
  int64_t start = 0, end = 0;  // MonotonicNow
  int64_t argument = 0;        // a counter's value; else as the span's name says
  uint32_t thread = 0;         // position in TraceRecord::threads
};
struct TraceThread {
  std::string name;
  int64_t number = 0;  // the system's
};
struct TraceRecord {
  std::vector<TraceThread> threads;  // in the order in which they came
  std::vector<TraceSpan>
      spans;                   // thread by thread; of one thread by their starts, and what is inside another behind it
  int64_t start = 0, end = 0;  // MonotonicNow
  int64_t lost = 0;            // spans that were there and had no room
};

// Brings the spans of one thread into a record's order.
void SortSpans(std::span<TraceSpan> spans);

// --- Time stamps ------------------------------------------------------------------------------------------------------
// True if the processor's time-stamp counter is invariant; false before the first trace is started.
extern constinit std::atomic<bool> g_counter_serves;
inline uint64_t TraceTicks() {
#if defined(__x86_64__)
  if (g_counter_serves.load(std::memory_order_relaxed)) return __rdtsc();
#endif
  return static_cast<uint64_t>(MonotonicNow());
}

// --- Writing ----------------------------------------------------------------------------------------------------------
// The newest spans of one thread. Its thread writes, others read meanwhile.
class TraceLane {
 public:
  TraceLane(TraceThread thread, size_t most);
  ~TraceLane();
  TraceLane(const TraceLane&) = delete;
  TraceLane& operator=(const TraceLane&) = delete;

  void Add(const SpanName& name, uint64_t begin, uint64_t end, int64_t argument);
  struct Event {
    const SpanName* name;
    uint64_t begin, end;
    int64_t argument;
  };
  // Returns the events that the ring holds, the earliest end first, and adds to `lost` how many were overwritten.
  std::vector<Event> Read(int64_t* lost) const;
  uint64_t added() const { return added_.load(std::memory_order_acquire); }
  const TraceThread& thread() const { return thread_; }
  // Gives the memory back; what is added meanwhile or later is lost.
  void Forget();

 private:
  static constexpr size_t kWords = 4;  // of an event
  const TraceThread thread_;
  const size_t most_;
  uint64_t* words_ = nullptr;       // null: there was no memory
  std::atomic<uint64_t> begun_{0};  // events, with that which is being written
  std::atomic<uint64_t> added_{0};  // events that are whole
  std::atomic<bool> forgotten_{false};
};

// The number of contexts that trace.
extern constinit std::atomic<uint32_t> g_tracing;
inline bool Tracing() { return g_tracing.load(std::memory_order_acquire) != 0; }
// This thread's lane in that context's trace; null if it is not started. To be asked only if Tracing().
TraceLane* LaneOf(uint64_t trace);

// Somebody else who notes what devices do while a trace is on, such as a plugin's profiler. Both functions may take long; they are
// called in turn, by one thread at a time.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  virtual void Start() = 0;
  // Returns threads, spans and how many were lost since, on MonotonicNow's clock.
  virtual TraceRecord Stop() = 0;
};

// Thread rule: any thread.
class Trace {
 public:
  static constexpr int64_t kEventBytes = 32;
  static constexpr size_t kMostLanes = 256;

  explicit Trace(uint64_t id) : id_(id) {}
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  uint64_t id() const { return id_; }
  bool on() const { return Tracing() && LaneOf(id_) != nullptr; }
  // Forgets what there was and keeps the newest spans from here on, as many as fit into so many bytes a thread.
  // FAILED_PRECONDITION: it has been started already.
  absl::Status Start(int64_t bytes_a_thread);
  // Ends it; what there is stays until the next start. FAILED_PRECONDITION: nobody has started it.
  absl::Status Stop();
  // Returns all threads and spans, of a trace that goes on, too, but then without those of the sources. FAILED_PRECONDITION: it was never started.
  absl::StatusOr<TraceRecord> Record() const;
  // Adds a source, whose lanes come behind the trace's own from here on.
  void AddSource(std::unique_ptr<TraceSource> source);

 private:
  friend TraceLane* LaneOf(uint64_t trace);
  struct Moment {
    uint64_t ticks = 0;
    int64_t now = 0;
  };
  static Moment Now();
  std::shared_ptr<TraceLane> LaneOfThisThread();
  absl::Status Begin(int64_t bytes_a_thread);
  absl::Status End();

  const uint64_t id_;
  ForkGuard fork_;
  Mutex turn_;  // to start and stop; taken before mutex_
  std::vector<std::unique_ptr<TraceSource>> sources_ ABSL_GUARDED_BY(turn_);
  mutable Mutex mutex_;
  TraceRecord told_ ABSL_GUARDED_BY(mutex_);  // by sources
  bool on_ ABSL_GUARDED_BY(mutex_) = false, was_on_ ABSL_GUARDED_BY(mutex_) = false;
  size_t most_ ABSL_GUARDED_BY(mutex_) = 0;
  Moment start_ ABSL_GUARDED_BY(mutex_), end_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<TraceLane>> lanes_
      ABSL_GUARDED_BY(mutex_);                // by thread, in the order in which they came
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;  // of threads that ended and made room for others
};

// Whose trace this thread's work belongs to, where nobody says it: that of the scope around, 0 without one.
uint64_t ThisThreadsTrace();
class TraceScope {
 public:
  explicit TraceScope(uint64_t trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const uint64_t around_;
};

// The span from here to the end of the scope, if the context traces at its beginning.
class SpanScope {
 public:
  explicit SpanScope(const SpanName& name) : SpanScope(Tracing() ? ThisThreadsTrace() : 0, name) {}
  SpanScope(uint64_t trace, const SpanName& name, int64_t argument = 0)
      : trace_(trace), name_(name), argument_(argument) {
    if (Tracing()) Begin();
  }
  SpanScope(const Trace& trace, const SpanName& name, int64_t argument = 0) : SpanScope(trace.id(), name, argument) {}
  ~SpanScope() { End(); }
  // Ends it before the scope does.
  void End() {
    if (lane_ == nullptr) return;
    // Looked up anew: since the trace ended, another span of this thread may have let go of the lane.
    if (LaneOf(trace_) == lane_) lane_->Add(name_, begin_, TraceTicks(), argument_);
    lane_ = nullptr;
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  void Begin() {
    lane_ = LaneOf(trace_);
    if (lane_ != nullptr) begin_ = TraceTicks();
  }
  const uint64_t trace_;
  TraceLane* lane_ = nullptr;
  const SpanName& name_;
  const int64_t argument_;
  uint64_t begin_ = 0;
};

// The value of a quantity from here on.
inline void TraceValue(uint64_t trace, const SpanName& name, int64_t value) {
  if (!Tracing()) return;
  if (TraceLane* const lane = LaneOf(trace)) {
    const uint64_t now = TraceTicks();
    lane->Add(name, now, now, value);
  }
}

// Names the calling thread for the system and for traces, in up to 15 bytes.
void NameThread(const std::string& name);

// --- Regions of a pool ------------------------------------------------------------------------------------------------
// The kernel that this thread runs, so that others which help it have spans of that name.
struct RunningKernel {
  uint64_t trace = 0;
  const SpanName* share = nullptr;  // null: none that is traced
};
RunningKernel& ThisThreadsKernel();

// A kernel's span, and those of the threads that help it. `share` is their name.
class KernelScope {
 public:
  KernelScope(uint64_t trace, const SpanName& name, const SpanName& share) : span_(trace, name) {
    ThisThreadsKernel() = {trace, &share};
  }
  ~KernelScope() { ThisThreadsKernel() = {}; }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  const SpanScope span_;
};

}  // namespace weft
