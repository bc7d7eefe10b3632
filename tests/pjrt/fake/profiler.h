// The fake's profiler: PJRT's extension, which notes the launches of devices.
#pragma once

#include <cstdint>

namespace weft::pjrt::fake {

// The extension, behind which is `next`.
void* ProfilerBefore(void* next);
// A launch on a device from one time of CLOCK_REALTIME to another, in nanoseconds. Thread rule: any thread.
void NoteLaunch(int64_t device, int64_t begin, int64_t end);
int64_t RealtimeNow();

}  // namespace weft::pjrt::fake
