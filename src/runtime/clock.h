// The clock that durations are taken from.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft {

// Nanoseconds since some fixed point; never goes back.
inline int64_t MonotonicNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace weft
