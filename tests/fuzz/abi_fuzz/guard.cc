// See guard.h. Nothing here may allocate but through the C library's own functions.
#include "tests/fuzz/abi_fuzz/guard.h"

#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__GLIBC__)
extern "C" {
void* __libc_malloc(size_t);
void __libc_free(void*);
}

namespace weft::fuzz {
namespace {

constexpr uint64_t kTaken = 0x5AFEB10C5AFEB10C, kGiven = 0xDEADB10CDEADB10C;
constexpr unsigned char kBehind = 0xC3, kFreed = 0xDD;
constexpr size_t kTail = 48;                        // bytes behind a block
constexpr size_t kMostKept = 60'000;                // freed blocks
constexpr size_t kMostKeptBytes = size_t{48} << 20;  // of theirs
constexpr size_t kLargestKept = 64 << 10;

// Before each block.
struct Header {
  uint64_t state;
  size_t size;
  void* base;
  const void* thread;  // that took it
  const void* caller;  // of the function that took it
  uint64_t padding;  // blocks are aligned to 16 bytes
};
static_assert(sizeof(Header) % 16 == 0);

Header* HeaderOf(void* block) { return static_cast<Header*>(block) - 1; }

[[noreturn]] void Report(const char* what, void* block, size_t at) {
  const Header& header = *HeaderOf(block);
  char text[300];
  int length = std::snprintf(text, sizeof text, "FAILED: the heap is damaged: %s, at byte %zu of a block of %zu bytes that thread %p took, called from %p\n", what,
                             at, header.size, header.thread, header.caller);
  if (write(2, text, static_cast<size_t>(length)) < 0) std::abort();
  const auto* const bytes = static_cast<const unsigned char*>(block) + (at & ~size_t{15});
  for (int i = 0; i < 32; ++i) {
    length = std::snprintf(text, sizeof text, "%02x%s", bytes[i], i % 16 == 15 ? "\n" : " ");
    if (write(2, text, static_cast<size_t>(length)) < 0) std::abort();
  }
  std::abort();  // watch.cc says which call, and its stack
}

void CheckTail(void* block) {
  const Header& header = *HeaderOf(block);
  if (header.state == kGiven) Report("it is freed twice", block, 0);
  if (header.state != kTaken) Report("what stands before it was overwritten", block, 0);
  const auto* const bytes = static_cast<const unsigned char*>(block);
  for (size_t i = header.size; i < header.size + kTail; ++i) {
    if (bytes[i] != kBehind) Report("a byte behind it was written", block, i);
  }
}

void CheckFreed(void* block) {
  const Header& header = *HeaderOf(block);
  if (header.state != kGiven) Report("what stands before it was overwritten after it was freed", block, 0);
  const auto* const bytes = static_cast<const unsigned char*>(block);
  for (size_t i = 0; i < header.size + kTail; ++i) {
    if (bytes[i] != kFreed) Report("it was written after it was freed", block, i);
  }
}

// Freed blocks, in the order in which they were freed. A spin lock, because a mutex's functions are hooked.
void* g_kept[kMostKept];
size_t g_first = 0, g_next = 0, g_bytes = 0;
std::atomic_flag g_lock;

void Lock() {
  while (g_lock.test_and_set(std::memory_order_acquire)) usleep(0);
}
void Unlock() { g_lock.clear(std::memory_order_release); }

void Keep(void* block) {
  void* over[8];
  size_t count = 0;
  Lock();
  g_kept[g_next++ % kMostKept] = block;
  g_bytes += HeaderOf(block)->size;
  while ((g_next - g_first == kMostKept || g_bytes > kMostKeptBytes) && count < std::size(over)) {
    over[count] = g_kept[g_first++ % kMostKept];
    g_bytes -= HeaderOf(over[count++])->size;
  }
  Unlock();
  for (size_t i = 0; i < count; ++i) {
    CheckFreed(over[i]);
    __libc_free(HeaderOf(over[i])->base);
  }
}

bool FromEnvironment() {
  static const int failed = pthread_atfork(Lock, Unlock, Unlock);
  return failed == 0 && std::getenv("WEFT_FUZZ_GUARD") != nullptr;
}

}  // namespace

bool Guarded() {
  static std::atomic<int> known{-1};
  int guarded = known.load(std::memory_order_relaxed);
  if (guarded < 0) {
    guarded = FromEnvironment() ? 1 : 0;
    known.store(guarded, std::memory_order_relaxed);
  }
  return guarded == 1;
}

void* GuardTake(size_t align, size_t size) {
  align = std::max<size_t>(align, 16);
  if (size > SIZE_MAX / 2 || align > SIZE_MAX / 4) return nullptr;
  void* const base = __libc_malloc(size + align + sizeof(Header) + kTail);
  if (base == nullptr) return nullptr;
  const uintptr_t block = (reinterpret_cast<uintptr_t>(base) + sizeof(Header) + align - 1) / align * align;
  void* const memory = reinterpret_cast<void*>(block);
  *HeaderOf(memory) = {kTaken, size, base, reinterpret_cast<const void*>(pthread_self()), __builtin_return_address(0), 0};
  std::memset(static_cast<char*>(memory) + size, kBehind, kTail);
  return memory;
}

void GuardGive(void* block) {
  if (block == nullptr) return;
  CheckTail(block);
  Header* const header = HeaderOf(block);
  header->state = kGiven;
  if (header->size > kLargestKept) return __libc_free(header->base);
  std::memset(block, kFreed, header->size + kTail);
  Keep(block);
}

size_t GuardSizeOf(void* block) {
  CheckTail(block);
  return HeaderOf(block)->size;
}

}  // namespace weft::fuzz
#else
bool weft::fuzz::Guarded() { return false; }
#endif
