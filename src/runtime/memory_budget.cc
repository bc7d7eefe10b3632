// See memory_budget.h.
#include "src/runtime/memory_budget.h"

#include "src/runtime/alloc_hook.h"

namespace weft {

void* MemoryBudget::Allocate(size_t bytes, size_t align) {
  const auto wanted = static_cast<int64_t>(bytes);
  const int64_t used = used_.fetch_add(wanted, std::memory_order_relaxed) + wanted;
  void* const memory = limit_ > 0 && used > limit_ ? nullptr : AllocateLarge(bytes, align);
  if (memory == nullptr) used_.fetch_sub(wanted, std::memory_order_relaxed);
  return memory;
}

void MemoryBudget::Free(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  FreeLarge(memory, bytes);
  used_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

absl::Status MemoryBudget::Shortage(std::string_view what, size_t bytes) const {
  const int64_t used = this->used();
  if (limit_ == 0 || used + static_cast<int64_t>(bytes) <= limit_) return NoLargeMemory(what);
  absl::Status status = UserErrorOf(absl::StatusCode::kResourceExhausted, "no memory for ", what, ": memory_limit is ",
                                    limit_, " bytes, of which ", used, " are in use");
  return static_cast<int64_t>(bytes) <= limit_ ? RetryAfterRelease(std::move(status)) : status;
}

}  // namespace weft
