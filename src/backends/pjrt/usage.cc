// See usage.h.
#include "src/backends/pjrt/usage.h"

#include "absl/strings/str_cat.h"

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

absl::StatusOr<Share> ShareOf(Usage& usage, int64_t bytes) {
  if (const absl::Status counted = usage.Exchange(bytes); !counted.ok()) {
    return absl::Status(counted.code(),
                        absl::StrCat("no memory for a tensor of ", bytes, " bytes: ", counted.message()));
  }
  return Share(&usage, bytes);
}

}  // namespace weft::pjrt
