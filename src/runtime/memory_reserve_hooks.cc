// The library's malloc and mmap, and with them every new in it: libweft.so is linked with --wrap for each of these, which sends
// all calls from inside it here and leaves the process's own alone. As long as there is memory this is one comparison more.
// Nothing refers to this file where --wrap is not used.
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "src/runtime/memory_reserve.h"

using weft::MemoryReserve;

extern "C" {

void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
void* __real_realloc(void* block, size_t size);
void* __real_aligned_alloc(size_t align, size_t size);
void* __real_memalign(size_t align, size_t size);
int __real_posix_memalign(void** out, size_t align, size_t size);
void __real_free(void* block);
void* __real_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset);

void* __wrap_malloc(size_t size) {
  void* const block = __real_malloc(size);
  return block != nullptr ? block : MemoryReserve::Take(size, 1, __real_memalign);
}

void* __wrap_calloc(size_t count, size_t size) {
  void* block = __real_calloc(count, size);
  size_t bytes;
  if (block != nullptr || __builtin_mul_overflow(count, size, &bytes)) return block;
  block = MemoryReserve::Take(bytes, 1, __real_memalign);
  if (block != nullptr) std::memset(block, 0, bytes);
  return block;
}

void __wrap_free(void* block) {
  if (MemoryReserve::Holds(block)) {
    MemoryReserve::Give(block);
  } else {
    __real_free(block);
  }
}

void* __wrap_realloc(void* block, size_t size) {
  if (block == nullptr) return __wrap_malloc(size);
  const bool held = MemoryReserve::Holds(block);
  if (!held) {
    void* const moved = __real_realloc(block, size);
    if (moved != nullptr || size == 0) return moved;
  }
  if (held && size == 0) {
    MemoryReserve::Give(block);
    return nullptr;
  }
  void* const moved = held ? __wrap_malloc(size) : MemoryReserve::Take(size, 1, __real_memalign);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(size, held ? MemoryReserve::SizeOf(block) : malloc_usable_size(block)));
  __wrap_free(block);
  return moved;
}

void* __wrap_aligned_alloc(size_t align, size_t size) {
  void* const block = __real_aligned_alloc(align, size);
  return block != nullptr || errno == EINVAL ? block : MemoryReserve::Take(size, align, __real_memalign);
}

void* __wrap_memalign(size_t align, size_t size) {
  void* const block = __real_memalign(align, size);
  return block != nullptr || errno == EINVAL ? block : MemoryReserve::Take(size, align, __real_memalign);
}

int __wrap_posix_memalign(void** out, size_t align, size_t size) {
  const int failure = __real_posix_memalign(out, align, size);
  if (failure != ENOMEM) return failure;
  void* const block = MemoryReserve::Take(size, align, __real_memalign);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

// A caller of mmap can be told that it failed; that it was for want of memory may not reach the compilation's error.
void* __wrap_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  void* const memory = __real_mmap(at, size, protection, flags, file, offset);
  if (memory == MAP_FAILED && errno == ENOMEM) MemoryReserve::Note();
  return memory;
}

}  // extern "C"
