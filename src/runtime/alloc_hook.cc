// mmap for blocks of 2 MiB and more (huge pages, returned to the system at once), aligned new below.
#include "src/runtime/alloc_hook.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "src/runtime/fork.h"
#include "src/runtime/host_allocator.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

constinit Mutex g_settings_mutex;
std::atomic<bool> g_customised{false};  // whether the two below are worth a lock
LargeAllocator g_allocator ABSL_GUARDED_BY(g_settings_mutex);
LargeAllocationGate g_gate ABSL_GUARDED_BY(g_settings_mutex) = nullptr;
void* g_gate_user ABSL_GUARDED_BY(g_settings_mutex) = nullptr;

// Remembers the last memory that a host's allocator gave this thread unaligned; nullptr if its last failure was
// another.
struct Misaligned {
  void* memory = nullptr;
  size_t bytes = 0, align = 0;
};
constinit thread_local Misaligned t_misaligned;

std::atomic<int64_t> g_blocks{0};  // allocated, or about to be, or not quite freed
std::atomic<int64_t> g_live{0};
std::atomic<int64_t> g_peak{0};
std::atomic<int64_t> g_allocations{0};

void* MapHuge(size_t bytes) {
  // One huge page more than asked for, then the ragged ends go back.
  const size_t span = bytes + kHugePage;
  if (span < bytes) return nullptr;
  void* raw = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uintptr_t start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t end = aligned + bytes;
  if (start + span > end) munmap(reinterpret_cast<void*>(end), start + span - end);
  void* memory = reinterpret_cast<void*>(aligned);
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

size_t RoundToPage(size_t bytes) { return (bytes + 4095) & ~size_t{4095}; }

void* SystemAllocate(size_t bytes, size_t align) {
  if (bytes > SIZE_MAX / 2 || align > kHugePage) return nullptr;
  if (bytes >= kHugePage) return MapHuge(RoundToPage(bytes));
  void* memory = nullptr;
  return posix_memalign(&memory, std::max<size_t>(align, 64), bytes) == 0 ? memory : nullptr;
}

void SystemFree(void* memory, size_t bytes) {
  if (bytes >= kHugePage) {
    munmap(memory, RoundToPage(bytes));
  } else {
    std::free(memory);
  }
}

void* AllocateCounted(size_t bytes, size_t align) {
  LargeAllocator allocator;
  if (g_customised.load()) {
    MutexLock lock(g_settings_mutex);
    t_misaligned.memory = nullptr;
    if (g_gate != nullptr && !g_gate(g_gate_user, bytes)) return nullptr;
    allocator = g_allocator;
  }
  void* memory =
      allocator.allocate != nullptr ? allocator.allocate(allocator.user, bytes, align) : SystemAllocate(bytes, align);
  t_misaligned.memory = nullptr;
  if (memory == nullptr) return nullptr;
  if (reinterpret_cast<uintptr_t>(memory) % align != 0) {
    t_misaligned = {memory, bytes, align};
    allocator.free(allocator.user, memory, bytes);
    return nullptr;
  }
  return memory;
}

}  // namespace

void* AllocateLarge(size_t bytes, size_t align) {
  if (bytes == 0) bytes = 1;
  // Counted before asking whose memory it will be: see SetLargeAllocatorIfIdle.
  g_blocks.fetch_add(1);
  void* const memory = AllocateCounted(bytes, align);
  if (memory == nullptr) {
    g_blocks.fetch_sub(1);
    return nullptr;
  }
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const int64_t live =
      g_live.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed) + static_cast<int64_t>(bytes);
  int64_t peak = g_peak.load(std::memory_order_relaxed);
  while (live > peak && !g_peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  return memory;
}

absl::Status NoLargeMemory(std::string_view what) {
  if (t_misaligned.memory == nullptr) {
    return RetryAfterRelease(UserErrorOf(absl::StatusCode::kResourceExhausted, "no memory for ", what));
  }
  const Misaligned last = t_misaligned;
  return UserErrorOf(absl::StatusCode::kFailedPrecondition, "no memory for ", what,
                     ": weft_context_options.allocate was asked for ", last.bytes, " bytes aligned to ", last.align,
                     " and gave 0x", absl::Hex(reinterpret_cast<uintptr_t>(last.memory)), ", which is aligned to ",
                     reinterpret_cast<uintptr_t>(last.memory) & -reinterpret_cast<uintptr_t>(last.memory));
}

void FreeLarge(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  if (bytes == 0) bytes = 1;
  g_live.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  LargeAllocator allocator;
  if (g_customised.load()) {
    MutexLock lock(g_settings_mutex);
    allocator = g_allocator;
  }
  if (allocator.free != nullptr) {
    allocator.free(allocator.user, memory, bytes);
  } else {
    SystemFree(memory, bytes);
  }
  g_blocks.fetch_sub(1);
}

LargeAllocator SetLargeAllocator(const LargeAllocator& allocator) {
  MutexLock lock(g_settings_mutex);
  LargeAllocator before = g_allocator;
  g_allocator = allocator;
  g_customised.store(g_allocator.allocate != nullptr || g_gate != nullptr, std::memory_order_release);
  return before;
}

bool SetLargeAllocatorIfIdle(const LargeAllocator& allocator) {
  // Whoever allocates counts first and looks for an allocator then; here it is the other way round. So either that thread sees
  // the flag, and waits for what is decided under the lock, or its block is seen here.
  HoldOverFork(g_settings_mutex, ForkOrder::kLater);
  MutexLock lock(g_settings_mutex);
  const bool before = g_customised.exchange(true);
  if (g_blocks.load() != 0) {
    g_customised.store(before);
    return false;
  }
  g_allocator = allocator;
  g_customised.store(g_allocator.allocate != nullptr || g_gate != nullptr);
  return true;
}

void SetLargeAllocationGate(LargeAllocationGate gate, void* user) {
  MutexLock lock(g_settings_mutex);
  g_gate = gate;
  g_gate_user = user;
  g_customised.store(g_allocator.allocate != nullptr || g_gate != nullptr, std::memory_order_release);
}

LargeMemoryStats GetLargeMemoryStats() {
  return {g_live.load(std::memory_order_relaxed), g_peak.load(std::memory_order_relaxed),
          g_allocations.load(std::memory_order_relaxed)};
}

}  // namespace weft
