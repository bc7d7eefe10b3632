// How a running launch learns that it shall end: kernels look between pieces of some microseconds to a few
// milliseconds, on whatever thread they run, and stop where they are. Nobody reads what they leave unfinished: the
// launch's outcome says so.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "src/runtime/cancel.h"

namespace weft {

// One launch's. Thread rule: any thread, Disarm and Outcome between kernels.
class LaunchLook {
 public:
  explicit LaunchLook(CancelToken token) : token_(std::move(token)) {}

  // Tells whether the launch shall end; once true, true for ever.
  bool Ended() const {
    if (ended_.load(std::memory_order_relaxed)) return true;
    if (!armed_ || !token_.Ended(began_ns_)) return false;
    ended_.store(true, std::memory_order_relaxed);
    return true;
  }
  // From here on the launch runs to its end, unless somebody has seen already that it shall not.
  void Disarm() { armed_ = false; }
  // Returns the outcome of a launch that stops here if somebody has seen that it shall end.
  absl::Status Outcome() const {
    return ended_.load(std::memory_order_relaxed) ? token_.Look(began_ns_) : absl::OkStatus();
  }

 private:
  const CancelToken token_;
  const int64_t began_ns_ = MonotonicNow();
  bool armed_ = true;
  mutable std::atomic<bool> ended_{false};
};

// The owner (ThreadPool::owner) of the regions of a launch that runs.
struct RunningLaunch {
  const LaunchLook* look = nullptr;  // null: it runs to its end
  const void* scratch = nullptr;     // a cpu::ScratchSet; null: every thread's own
};

// Tells whether the launch that this thread works for shall end. 3 ns, and 25 with a deadline.
bool LaunchEnds();

// The same for loops over small pieces, of so many multiplications or bytes: one look in some hundred microseconds.
class PieceLook {
 public:
  explicit PieceLook(double work) : every_(static_cast<int64_t>(std::clamp(2e6 / work, 1.0, 2e6))) {}
  bool Ends() {
    if (--left_ > 0) return false;
    left_ = every_;
    return LaunchEnds();
  }

 private:
  const int64_t every_;
  int64_t left_ = every_;
};

// Generated code calls this.
extern "C" int32_t weft_launch_ends();

}  // namespace weft
