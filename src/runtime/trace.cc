// The ring of spans.
#include "src/runtime/trace.h"

#include <algorithm>

namespace weft {
namespace {

uint32_t ThisThread() {
  static constinit std::atomic<uint32_t> threads{0};
  static constinit thread_local uint32_t own = UINT32_MAX;
  if (own == UINT32_MAX) own = threads.fetch_add(1, std::memory_order_relaxed);
  return own;
}

}  // namespace

void Trace::Start(size_t most) {
  on_.store(false, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  ring_.assign(most, {});
  added_ = 0;
  on_.store(most > 0, std::memory_order_relaxed);
}

std::vector<TraceSpan> Trace::Stop() {
  on_.store(false, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  if (added_ > ring_.size()) {
    std::ranges::rotate(ring_, ring_.begin() + static_cast<int64_t>(added_ % ring_.size()));
  } else {
    ring_.resize(static_cast<size_t>(added_));
  }
  added_ = 0;
  return std::exchange(ring_, {});
}

void Trace::Add(const char* name, int64_t start, int64_t end) {
  const uint32_t thread = ThisThread();
  MutexLock lock(mutex_);
  if (ring_.empty()) return;  // stopped meanwhile
  ring_[static_cast<size_t>(added_++ % ring_.size())] = {name, start, end, thread};
}

}  // namespace weft
