// Large allocations that end at a page nobody may touch: a kernel that runs over its buffers dies on the spot instead of
// spoiling what happens to lie behind.
#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "src/runtime/alloc_hook.h"

namespace weft::test {

// Call before anything is allocated; holds for the rest of the process.
inline void GuardLargeAllocations() {
  constexpr size_t kPage = 4096;
  static constexpr auto kSpan = [](size_t bytes) { return (bytes + kPage - 1) / kPage * kPage + kPage; };
  LargeAllocator allocator;
  allocator.allocate = [](void*, size_t bytes, size_t align) -> void* {
    if (bytes > SIZE_MAX / 2) return nullptr;
    const size_t rounded = (bytes + align - 1) / align * align, span = kSpan(rounded);
    void* base = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    char* end = static_cast<char*>(base) + span - kPage;
    mprotect(end, kPage, PROT_NONE);
    return end - rounded;
  };
  // The block's page is the mapping's first only up to alignment: everything from there to the guard goes.
  allocator.free = [](void*, void* memory, size_t bytes) {
    const auto start = reinterpret_cast<uintptr_t>(memory) / kPage * kPage;
    munmap(reinterpret_cast<void*>(start), kSpan(bytes));
  };
  SetLargeAllocator(allocator);
}

}  // namespace weft::test
