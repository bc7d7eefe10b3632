// See parts.h.
#include "src/runtime/parts.h"

#include <algorithm>
#include <utility>

#include "src/runtime/thread_table.h"
#include "src/runtime/trace.h"

namespace weft {
namespace {

constexpr Counter CounterOf(Part part) {
  return static_cast<Counter>(static_cast<int>(Counter::kNanosecondsRecording) + static_cast<int>(part));
}
constexpr ThreadState StateOf(Part part) {
  return static_cast<ThreadState>(static_cast<uint32_t>(ThreadState::kRecording) + static_cast<uint32_t>(part));
}
static_assert(StateOf(Part::kResults) == ThreadState::kWaitingForResults &&
              StateOf(Part::kCopying) == ThreadState::kCopying);
static_assert(CounterOf(Part::kCopying) == Counter::kNanosecondsCopying);

// The part that the thread is in, for whom, and since when.
struct Watch {
  Metrics* metrics = nullptr;  // null: in no part; then they may be gone
  uint64_t id = 0;             // of the metrics of the last part
  Part part = Part::kRecording;
  int64_t since = 0;
  int64_t ran = 0;
  uint64_t ticks = 0;  // when the span of this part began; 0: nobody traced then
};
constinit thread_local Watch t_watch;

// The names stand in the order of Part.
constexpr SpanName kParts[] = {{.text = "record"},        {.text = "look up"},           {.text = "wait for compiler"},
                               {.text = "wait for room"}, {.text = "wait for memory"},   {.text = "wait for results"},
                               {.text = "launch"},        {.text = "run on the caller"}, {.text = "copy"}};
static_assert(std::size(kParts) == static_cast<size_t>(Part::kCopying) + 1);

// Ends the span of the part that was until now; another begins.
void CloseSpan(Watch& watch) {
  if (!Tracing()) {
    watch.ticks = 0;
    return;
  }
  const uint64_t now = TraceTicks();
  const uint64_t began = std::exchange(watch.ticks, now);
  if (began == 0) return;
  if (TraceLane* const lane = LaneOf(watch.id)) lane->Add(kParts[static_cast<size_t>(watch.part)], began, now, 0);
}

// The part that was until now.
void Close(Watch& watch, Metrics& metrics, int64_t now) {
  const int64_t took = std::max<int64_t>(now - std::exchange(watch.since, now), 0);
  CloseSpan(watch);
  metrics.Add(CounterOf(watch.part), took);
  if (watch.part == Part::kRunning) watch.ran += took;
  const bool waits = watch.part == Part::kRoom || watch.part == Part::kMemory || watch.part == Part::kResults;
  if (waits) metrics.Add(Counter::kNanosecondsWaiting, took);
  if (watch.part == Part::kRecording) metrics.Add(Sample::kRecording, took, now);
}

}  // namespace

PartScope::PartScope(Metrics& metrics, Part part, int64_t now) : PartScope(metrics, part, now, false) {}

PartScope PartScope::Inside(Metrics& metrics, Part part, int64_t now) { return {metrics, part, now, true}; }

PartScope::PartScope(Metrics& metrics, Part part, int64_t now, bool inside) : start_(now), part_(part) {
  Watch& watch = t_watch;
  if (watch.metrics != nullptr ? watch.metrics != &metrics : inside) return;
  counts_ = true;
  around_ = watch.part;
  // Nobody knows whose the time is since another context's parts ended, or before the first began.
  if (watch.id == metrics.id()) Close(watch, metrics, now);
  uint64_t ticks = watch.id == metrics.id() ? watch.ticks : 0;
  if (ticks == 0 && Tracing()) ticks = TraceTicks();
  watch = {&metrics, metrics.id(), part, now, watch.ran, ticks};
  SetThreadState(StateOf(part), now);
}

void PartScope::End(int64_t now) {
  if (!std::exchange(counts_, false)) return;
  Watch& watch = t_watch;
  Metrics& metrics = *watch.metrics;
  Close(watch, metrics, now);
  if (part_ == Part::kRoom) metrics.Add(Sample::kRoom, now - start_, now);
  watch.part = around_;
  SetThreadState(StateOf(around_), now);
  if (around_ == Part::kRecording) watch.metrics = nullptr;
}

int64_t PartScope::Ran() { return t_watch.ran; }

void PartScope::Begin(const Metrics& metrics) {
  Watch& watch = t_watch;
  if (watch.metrics != nullptr) return;
  watch = {nullptr, metrics.id(), Part::kRecording, MonotonicNow(), watch.ran, Tracing() ? TraceTicks() : 0};
  SetThreadState(ThreadState::kRecording, watch.since);
}

void PartScope::SplitSpan(uint64_t metrics) {
  if (t_watch.id == metrics) CloseSpan(t_watch);
}

}  // namespace weft
