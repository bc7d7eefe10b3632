// A host's allocator that comes while other threads allocate.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/runtime/host_allocator.h"

namespace weft {
namespace {

// Every block is marked before its start, so that one of the other allocator's is noticed.
constexpr uint64_t kMark = 0x5745465457454654;
std::atomic<int> g_foreign{0};

void* Allocate(void*, size_t bytes, size_t align) {
  void* memory = nullptr;
  if (posix_memalign(&memory, align, bytes + align) != 0) return nullptr;
  std::memcpy(static_cast<char*>(memory) + align - sizeof(kMark), &kMark, sizeof(kMark));
  return static_cast<char*>(memory) + align;
}
void Free(void*, void* memory, size_t) {
  uint64_t mark;
  std::memcpy(&mark, static_cast<char*>(memory) - sizeof(mark), sizeof(mark));
  if (mark != kMark) {
    ++g_foreign;  // never freed: it would be the end of the test
    return;
  }
  std::memset(static_cast<char*>(memory) - sizeof(mark), 0, sizeof(mark));
  free(static_cast<char*>(memory) - 64);
}

TEST(LargeMemory, IsFreedByTheAllocatorThatGaveItWhoeverComesMeanwhile) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
        void* const memory = AllocateLarge(256);
        std::memset(memory, 1, 256);
        FreeLarge(memory, 256);
        std::this_thread::yield();
      }
    });
  }
  int taken = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (taken < 2000 && std::chrono::steady_clock::now() < end) {
    if (!SetLargeAllocatorIfIdle({Allocate, Free, nullptr})) continue;
    ++taken;
    while (!SetLargeAllocatorIfIdle({})) {
    }
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(g_foreign, 0);
  EXPECT_GT(taken, 0);
  EXPECT_EQ(GetLargeMemoryStats().live_bytes, 0);
}

}  // namespace
}  // namespace weft
