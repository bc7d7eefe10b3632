// See trace.h.
#include "src/runtime/trace.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "src/runtime/lasting.h"
#include "src/runtime/status.h"

namespace weft {

constinit std::atomic<bool> g_counter_serves{false};
constinit std::atomic<uint32_t> g_tracing{0};

namespace {

// Moves whenever a trace begins, ends or goes: what a thread has found out holds no more.
constinit std::atomic<uint64_t> g_epoch{1};

// The traces that are on.
struct TracesOn {
  Mutex mutex;
  std::map<uint64_t, Trace*> by_id ABSL_GUARDED_BY(mutex);

  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
};
TracesOn& AllOn() {
  static Lasting<TracesOn> on;
  return on.Get();
}

// The lane that this thread looked up last. It holds the lane, so that the thread may write while the trace ends.
struct Found {
  uint64_t trace = 0, epoch = 0;
  std::shared_ptr<TraceLane> lane;
};
thread_local Found t_found;
constinit thread_local RunningKernel t_kernel;
constinit thread_local uint64_t t_trace = 0;

// True if the time-stamp counter is invariant: it runs at one speed, whatever the processor's clock does.
bool CounterServes() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kPower = 0x80000007, kInvariant = 1U << 8;
  return __get_cpuid(kPower, &a, &b, &c, &d) != 0 && (d & kInvariant) != 0;
#else
  return false;
#endif
}

struct Before {
  static auto Tied(const SpanName& n) {
    return std::tie(n.text, n.kind, n.implementation, n.where, n.flops, n.bytes_read, n.bytes_written);
  }
  bool operator()(const SpanName& a, const SpanName& b) const { return Tied(a) < Tied(b); }
};
// Elements of a set stay where they are; the texts are those that `texts` holds.
struct SpanNames {
  Mutex mutex;
  std::set<SpanName, Before> names ABSL_GUARDED_BY(mutex);
  std::set<std::string, std::less<>> texts ABSL_GUARDED_BY(mutex);

  std::string_view Kept(std::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = texts.find(text);
    return found != texts.end() ? *found : *texts.emplace(text).first;
  }
  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
};

constexpr size_t kMostNames = 65'536;
constexpr std::string_view kKinds[] = {"caller", "compile", "launch", "kernel", "share", "file", "user", "counter"};
static_assert(std::size(kKinds) == static_cast<size_t>(SpanKind::kCount));

}  // namespace

std::string_view NameOf(SpanKind kind) { return kKinds[static_cast<size_t>(kind)]; }

const SpanName* InternSpanName(const SpanName& name) {
  static Lasting<SpanNames> all;
  using More = std::array<SpanName, static_cast<size_t>(SpanKind::kCount)>;
  static constexpr More kMore = [] {
    More more{};
    for (size_t i = 0; i < more.size(); ++i) {
      more[i].text = "(more)";
      more[i].kind = static_cast<SpanKind>(i);
    }
    return more;
  }();
  SpanNames& known = all.Get();
  MutexLock lock(known.mutex);
  if (const auto found = known.names.find(name); found != known.names.end()) return &*found;
  if (known.names.size() >= kMostNames) return &kMore[static_cast<size_t>(name.kind)];
  SpanName own = name;
  own.text = known.Kept(name.text);
  own.implementation = known.Kept(name.implementation);
  own.where = known.Kept(name.where);
  return &*known.names.insert(own).first;
}

RunningKernel& ThisThreadsKernel() { return t_kernel; }

uint64_t ThisThreadsTrace() { return t_trace; }
TraceScope::TraceScope(uint64_t trace) : around_(std::exchange(t_trace, trace)) {}
TraceScope::~TraceScope() { t_trace = around_; }

void NameThread(const std::string& name) { pthread_setname_np(pthread_self(), name.c_str()); }

// --- A thread's spans ---------------------------------------------------------------------------------------------------

TraceLane::TraceLane(TraceThread thread, size_t most) : thread_(std::move(thread)), most_(most) {
  // Pages that nobody writes to take no memory.
  void* const memory = mmap(nullptr, most_ * kWords * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) words_ = static_cast<uint64_t*>(memory);
}

TraceLane::~TraceLane() {
  if (words_ != nullptr) munmap(words_, most_ * kWords * sizeof(uint64_t));
}

void TraceLane::Forget() {
  forgotten_.store(true, std::memory_order_relaxed);
  if (words_ != nullptr) madvise(words_, most_ * kWords * sizeof(uint64_t), MADV_DONTNEED);
}

// A reader that sees one word of an event sees in `begun_` that it was begun, and so that the event which lay there is gone.
void TraceLane::Add(const SpanName& name, uint64_t begin, uint64_t end, int64_t argument) {
  const uint64_t at = begun_.load(std::memory_order_relaxed);
  begun_.store(at + 1, std::memory_order_relaxed);
  if (words_ != nullptr && !forgotten_.load(std::memory_order_relaxed)) {
    const uint64_t values[kWords] = {reinterpret_cast<uintptr_t>(&name), begin, end, static_cast<uint64_t>(argument)};
    uint64_t* const words = words_ + at % most_ * kWords;
    for (size_t i = 0; i < kWords; ++i) std::atomic_ref(words[i]).store(values[i], std::memory_order_release);
  }
  added_.store(at + 1, std::memory_order_release);
}

std::vector<TraceLane::Event> TraceLane::Read(int64_t* lost) const {
  const uint64_t until = added();
  if (words_ == nullptr || forgotten_.load(std::memory_order_relaxed)) {
    *lost += static_cast<int64_t>(until);
    return {};
  }
  uint64_t first = until - std::min<uint64_t>(until, most_);
  std::vector<Event> events;
  events.reserve(static_cast<size_t>(until - first));
  for (uint64_t at = first; at < until; ++at) {
    uint64_t values[kWords];
    uint64_t* const words = words_ + at % most_ * kWords;
    for (size_t i = 0; i < kWords; ++i) values[i] = std::atomic_ref(words[i]).load(std::memory_order_acquire);
    events.push_back(
        {reinterpret_cast<const SpanName*>(values[0]), values[1], values[2], static_cast<int64_t>(values[3])});
  }
  const uint64_t begun = begun_.load(std::memory_order_relaxed);
  const uint64_t whole = begun - std::min<uint64_t>(begun, most_);
  if (whole > first) {
    const uint64_t gone = std::min(whole, until) - first;
    events.erase(events.begin(), events.begin() + static_cast<ptrdiff_t>(gone));
    first += gone;
  }
  *lost += static_cast<int64_t>(first);
  return events;
}

TraceLane* LaneOf(uint64_t trace) {
  Found& found = t_found;
  const uint64_t epoch = g_epoch.load(std::memory_order_acquire);
  if (found.trace == trace && found.epoch == epoch) return found.lane.get();
  std::shared_ptr<TraceLane> lane;
  {
    TracesOn& on = AllOn();
    MutexLock lock(on.mutex);
    const auto which = on.by_id.find(trace);
    if (which != on.by_id.end()) lane = which->second->LaneOfThisThread();
  }
  found = {trace, epoch, std::move(lane)};
  return found.lane.get();
}

void SortSpans(std::span<TraceSpan> spans) {
  std::ranges::stable_sort(spans, [](const TraceSpan& a, const TraceSpan& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
}

namespace {

// Appends the threads and spans of another record.
void Append(TraceRecord other, TraceRecord* record) {
  const auto first = static_cast<uint32_t>(record->threads.size());
  for (TraceThread& thread : other.threads) record->threads.push_back(std::move(thread));
  for (TraceSpan span : other.spans) {
    span.thread += first;
    record->spans.push_back(span);
  }
  record->lost += other.lost;
}

}  // namespace

// --- A context's trace --------------------------------------------------------------------------------------------------

Trace::Moment Trace::Now() {
  // The clock's reading lies between two of the counter's; of some the closest pair.
  Moment best;
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = TraceTicks();
    const int64_t now = MonotonicNow();
    const uint64_t took = TraceTicks() - before;
    if (took < least) best = {before + took / 2, now}, least = took;
  }
  return best;
}

// The caller holds AllOn's lock, so that the trace is alive.
std::shared_ptr<TraceLane> Trace::LaneOfThisThread() {
  // The lock's holder may have stayed behind in a fork's parent.
  if (fork_.Forked()) return nullptr;
  static constinit std::atomic<uint64_t> threads{0};
  static constinit thread_local uint64_t own = 0;
  if (own == 0) own = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  MutexLock lock(mutex_);
  if (!on_) return nullptr;
  if (const auto known = lanes_.find(own); known != lanes_.end()) return known->second;
  try {
    if (lanes_.size() >= kMostLanes) {
      // This lane's thread has ended, or it writes to another trace now.
      const auto ended = std::ranges::find_if(lanes_, [](const auto& lane) { return lane.second.use_count() == 1; });
      if (ended == lanes_.end()) return nullptr;
      lost_ += static_cast<int64_t>(ended->second->added());
      lanes_.erase(ended);
    }
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    auto lane = std::make_shared<TraceLane>(TraceThread{name, syscall(SYS_gettid)}, most_);
    lanes_[own] = lane;
    return lane;
  } catch (const std::bad_alloc&) {
    return nullptr;  // the computation goes on without spans
  }
}

absl::Status Trace::Start(int64_t bytes_a_thread) {
  MutexLock turn(turn_);
  WEFT_RETURN_IF_ERROR(Begin(bytes_a_thread));
  for (const auto& source : sources_) source->Start();
  return absl::OkStatus();
}

absl::Status Trace::Stop() {
  MutexLock turn(turn_);
  WEFT_RETURN_IF_ERROR(End());
  TraceRecord told;
  for (const auto& source : sources_) Append(source->Stop(), &told);
  MutexLock lock(mutex_);
  told_ = std::move(told);
  return absl::OkStatus();
}

void Trace::AddSource(std::unique_ptr<TraceSource> source) {
  MutexLock turn(turn_);
  bool on = false;
  {
    MutexLock lock(mutex_);
    on = on_;
  }
  if (on) source->Start();
  sources_.push_back(std::move(source));
}

absl::Status Trace::Begin(int64_t bytes_a_thread) {
  TracesOn& all = AllOn();
  MutexLock everyone(all.mutex);
  MutexLock lock(mutex_);
  if (on_) return UserErrorOf(absl::StatusCode::kFailedPrecondition, "the trace has been started already");
  all.by_id[id_] = this;
  g_counter_serves.store(CounterServes(), std::memory_order_relaxed);
  fork_.Started();
  lanes_.clear();
  told_ = {};
  lost_ = 0;
  most_ = static_cast<size_t>(std::max<int64_t>(bytes_a_thread / kEventBytes, 1));
  on_ = was_on_ = true;
  start_ = Now();
  g_epoch.fetch_add(1, std::memory_order_release);
  g_tracing.fetch_add(1, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Trace::End() {
  TracesOn& all = AllOn();
  MutexLock everyone(all.mutex);
  MutexLock lock(mutex_);
  if (!on_) return UserErrorOf(absl::StatusCode::kFailedPrecondition, "the trace has not been started");
  all.by_id.erase(id_);
  on_ = false;
  end_ = Now();
  g_tracing.fetch_sub(1, std::memory_order_relaxed);
  g_epoch.fetch_add(1, std::memory_order_release);
  return absl::OkStatus();
}

Trace::~Trace() {
  {
    // Only threads that find it here have it.
    TracesOn& all = AllOn();
    MutexLock everyone(all.mutex);
    if (all.by_id.erase(id_) != 0) {
      g_tracing.fetch_sub(1, std::memory_order_relaxed);
      g_epoch.fetch_add(1, std::memory_order_release);
    }
  }
  if (fork_.Forked()) return;
  // Threads hold their lanes until they look at another.
  MutexLock lock(mutex_);
  for (const auto& [thread, lane] : lanes_) lane->Forget();
}

absl::StatusOr<TraceRecord> Trace::Record() const {
  std::vector<std::shared_ptr<TraceLane>> lanes;
  Moment start, end;
  TraceRecord record, told;
  {
    MutexLock lock(mutex_);
    if (!was_on_) return UserErrorOf(absl::StatusCode::kFailedPrecondition, "the trace has not been started");
    for (const auto& [thread, lane] : lanes_) lanes.push_back(lane);
    start = start_;
    end = on_ ? Now() : end_;
    record.lost = lost_;
    told = told_;
  }
  record.start = start.now;
  record.end = end.now;
  const double rate = end.ticks > start.ticks
                          ? static_cast<double>(end.now - start.now) / static_cast<double>(end.ticks - start.ticks)
                          : 1;
  const auto clock = [&](uint64_t ticks) {
    return start.now + static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(ticks - start.ticks)) * rate);
  };
  for (const auto& lane : lanes) {
    const auto thread = static_cast<uint32_t>(record.threads.size());
    record.threads.push_back(lane->thread());
    const size_t first = record.spans.size();
    for (const TraceLane::Event& event : lane->Read(&record.lost)) {
      record.spans.push_back({event.name, clock(event.begin), clock(event.end), event.argument, thread});
    }
    SortSpans(std::span(record.spans).subspan(first));
  }
  Append(std::move(told), &record);
  return record;
}

}  // namespace weft
