// Whether somebody asked running work to give up: launches look at it where they may end early.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "src/runtime/status.h"

namespace weft {

// A count of requests and what it was when the work was launched. Copied with the work, outlives who counts. Empty: nobody asks.
// Thread rule: any thread.
class CancelToken {
 public:
  CancelToken() = default;
  explicit CancelToken(std::shared_ptr<const std::atomic<uint32_t>> requests)
      : requests_(std::move(requests)), before_(requests_->load(std::memory_order_relaxed)) {}

  bool cancelled() const { return requests_ != nullptr && requests_->load(std::memory_order_relaxed) != before_; }

 private:
  std::shared_ptr<const std::atomic<uint32_t>> requests_;
  uint32_t before_ = 0;
};

// What becomes of the results of a loop that was to run on.
inline constexpr std::string_view kLoopCancelled =
    "a loop that was running was cancelled by weft_cancel: what its launch was to compute has no value";
inline absl::Status LoopCancelled() { return absl::CancelledError(kLoopCancelled); }

}  // namespace weft
