// The limit of large memory that a device may have at a time, whichever of its parts asks.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "src/runtime/status.h"

namespace weft {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }  // 0: none
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

  // AllocateLarge within the budget; nullptr if it or the machine has no more. FreeLarge and its bytes come back with Free.
  void* Allocate(size_t bytes, size_t align);
  void Free(void* memory, size_t bytes);
  // Why Allocate has just given nothing to this thread: no memory for `what`, which names the bytes, too.
  absl::Status Shortage(std::string_view what, size_t bytes) const;

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace weft
