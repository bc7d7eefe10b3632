// The one way to large memory: buffers of tensors, arenas, packing space. Tests make it fail; a host may bring its own
// allocator. Small objects use new as everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// Zero-initialised only as far as the system does it. At least `align` aligned (a power of two, 64 to 2 MiB); blocks
// of 2 MiB and more are aligned to 2 MiB and ask for huge pages, because a fresh 64 MiB of small pages costs 22 ms of
// faults. nullptr when there is no memory: the caller reports RESOURCE_EXHAUSTED with what it wanted the bytes for.
void* AllocateLarge(size_t bytes, size_t align = 64);
// The error for it, right after it on the same thread: no memory for `what`, which names the bytes, too; or, where that is
// why, FAILED_PRECONDITION that says how a host's allocator breaks its contract.
absl::Status NoLargeMemory(std::string_view what);
// `bytes` as given to AllocateLarge. nullptr is allowed.
void FreeLarge(void* memory, size_t bytes);

// Serves containers that may hold anything from a number to a network's weights: large blocks are AllocateLarge's.
template <typename T>
struct LargeStdAllocator {
  using value_type = T;
  LargeStdAllocator() = default;
  template <typename U>
  LargeStdAllocator(const LargeStdAllocator<U>&) {}
  static constexpr size_t kLarge = 64 << 10;
  T* allocate(size_t count) {
    if (count > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = count * sizeof(T);
    if (bytes < kLarge) return static_cast<T*>(::operator new(bytes));
    void* const memory = AllocateLarge(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kLarge) return ::operator delete(memory);
    FreeLarge(memory, bytes);
  }
  friend bool operator==(const LargeStdAllocator&, const LargeStdAllocator&) { return true; }
};

// A host's allocator. Set before the first allocation of a context; both functions or neither. Thread-safe functions.
struct LargeAllocator {
  void* (*allocate)(void* user, size_t bytes, size_t align) = nullptr;
  void (*free)(void* user, void* memory, size_t bytes) = nullptr;
  void* user = nullptr;
};
// Replaces the process's allocator and returns the one before. Memory goes back to the allocator that gave it only if
// the replacement happens while nothing is allocated.
LargeAllocator SetLargeAllocator(const LargeAllocator& allocator);
// The same where other threads may allocate meanwhile; false, and nothing changed, if anything is allocated.
bool SetLargeAllocatorIfIdle(const LargeAllocator& allocator);

// Fault injection: when set, asked before every allocation; returning false makes that allocation fail.
using LargeAllocationGate = bool (*)(void* user, size_t bytes);
void SetLargeAllocationGate(LargeAllocationGate gate, void* user);

// Bytes that AllocateLarge has given and FreeLarge not taken back; and the most at any time.
struct LargeMemoryStats {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t allocations = 0;
};
LargeMemoryStats GetLargeMemoryStats();

}  // namespace weft
