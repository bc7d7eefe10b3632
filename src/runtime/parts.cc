// See parts.h.
#include "src/runtime/parts.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

constexpr Counter CounterOf(Part part) {
  return static_cast<Counter>(static_cast<int>(Counter::kNanosecondsRecording) + static_cast<int>(part));
}
static_assert(CounterOf(Part::kCopying) == Counter::kNanosecondsCopying);

// What the thread is doing, for whom, and since when.
struct Watch {
  Metrics* metrics = nullptr;  // null: in no part; then they may be gone
  uint64_t id = 0;             // of the metrics of the last part
  Part part = Part::kRecording;
  int64_t since = 0;
  int64_t ran = 0;
};
constinit thread_local Watch t_watch;

// The part that was until now.
void Close(Watch& watch, Metrics& metrics, int64_t now) {
  const int64_t took = std::max<int64_t>(now - std::exchange(watch.since, now), 0);
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
  watch = {&metrics, metrics.id(), part, now, watch.ran};
}

void PartScope::End(int64_t now) {
  if (!std::exchange(counts_, false)) return;
  Watch& watch = t_watch;
  Metrics& metrics = *watch.metrics;
  Close(watch, metrics, now);
  if (part_ == Part::kRoom) metrics.Add(Sample::kRoom, now - start_, now);
  watch.part = around_;
  if (around_ == Part::kRecording) watch.metrics = nullptr;
}

int64_t PartScope::Ran() { return t_watch.ran; }

void PartScope::Begin(const Metrics& metrics) {
  Watch& watch = t_watch;
  if (watch.metrics == nullptr) watch = {nullptr, metrics.id(), Part::kRecording, MonotonicNow(), watch.ran};
}

}  // namespace weft
