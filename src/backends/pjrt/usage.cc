// See usage.h.
#include "src/backends/pjrt/usage.h"

namespace weft::pjrt {

absl::Status Usage::Exchange(int64_t more, int64_t gone, int64_t besides) {
  int64_t before = bytes(), now;
  do {
    now = before + more - gone;
    if (limit_ > 0 && more > 0 && now + besides > limit_) {
      absl::Status status =
          UserErrorOf(absl::StatusCode::kResourceExhausted, "memory_limit is ", limit_, " bytes, of which ", before,
                      " are in use, and ", more + besides - gone, " more are needed");
      return more + besides <= limit_ ? RetryAfterRelease(std::move(status)) : status;
    }
  } while (!bytes_.compare_exchange_weak(before, now, std::memory_order_relaxed));
  int64_t most = peak();
  while (now > most && !peak_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return absl::OkStatus();
}

}  // namespace weft::pjrt
