// Spans of time: what a thread did, from when to when. Off, which it is unless somebody starts it, a span costs one load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/runtime/clock.h"
#include "src/runtime/mutex.h"

namespace weft {

struct TraceSpan {
  const char* name = nullptr;  // a literal
  int64_t start = 0, end = 0;  // MonotonicNow
  uint32_t thread = 0;         // small numbers, in the order in which threads ended their first span
};

// Thread rule: any thread.
class Trace {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Forgets the spans so far and keeps the newest `most` from here on; the memory is taken here. RESOURCE_EXHAUSTED is thrown as
  // std::bad_alloc, and then the trace is off.
  void Start(size_t most);
  // Ends it and gives the spans, the earliest end first.
  std::vector<TraceSpan> Stop();
  void Add(const char* name, int64_t start, int64_t end);

 private:
  std::atomic<bool> on_{false};
  Mutex mutex_;
  std::vector<TraceSpan> ring_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The span from here to the end of the scope, if the trace is on at its beginning.
class SpanScope {
 public:
  SpanScope(Trace& trace, const char* name) : trace_(trace.on() ? &trace : nullptr), name_(name) {
    if (trace_ != nullptr) start_ = MonotonicNow();
  }
  ~SpanScope() {
    if (trace_ != nullptr) trace_->Add(name_, start_, MonotonicNow());
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  Trace* const trace_;
  const char* const name_;
  int64_t start_ = 0;
};

}  // namespace weft
