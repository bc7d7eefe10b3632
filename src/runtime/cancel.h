// Tells running work that somebody asked it to give up: launches look at it where they may end early.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "src/runtime/clock.h"
#include "src/runtime/status.h"

namespace weft {

// The error of the results that a cancelled launch did not compute.
inline constexpr std::string_view kLaunchCancelled =
    "a launch that was running was cancelled by weft_cancel: what it was to compute has no value";

// A count of requests and what it was when the work was launched, and how long the work may take. Copied with the work, outlives
// who counts. Empty: nobody asks. Thread rule: any thread.
class CancelToken {
 public:
  CancelToken() = default;
  // `deadline_ms` 0: as long as it takes.
  explicit CancelToken(std::shared_ptr<const std::atomic<uint32_t>> requests, int64_t deadline_ms = 0)
      : requests_(std::move(requests)),
        before_(requests_->load(std::memory_order_relaxed)),
        deadline_ms_(deadline_ms) {}

  // Tells whether work that began at this time shall end. A load, and with a deadline a look at the clock.
  bool Ended(int64_t began_ns) const {
    if (requests_ == nullptr) return false;
    if (requests_->load(std::memory_order_relaxed) != before_) return true;
    return deadline_ms_ != 0 && (MonotonicNow() - began_ns) / 1'000'000 >= deadline_ms_;
  }
  // The same as an outcome.
  absl::Status Look(int64_t began_ns) const {
    if (!Ended(began_ns)) return absl::OkStatus();
    if (requests_->load(std::memory_order_relaxed) != before_) return absl::CancelledError(kLaunchCancelled);
    return UserErrorOf(absl::StatusCode::kDeadlineExceeded, "a launch was still running after ", deadline_ms_,
                       " ms, the option launch_deadline_ms: what it was to compute has no value");
  }

 private:
  std::shared_ptr<const std::atomic<uint32_t>> requests_;
  uint32_t before_ = 0;
  int64_t deadline_ms_ = 0;
};

}  // namespace weft
