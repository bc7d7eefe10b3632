// The reserve by itself; that the library uses it is tests/c_api/out_of_memory.c.
#include "src/runtime/memory_reserve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace weft {
namespace {

void* NoSystem(size_t, size_t) { return nullptr; }

TEST(MemoryReserve, GivesNothingOutsideAScope) {
  EXPECT_EQ(nullptr, MemoryReserve::Take(100, 16, NoSystem));
  EXPECT_TRUE(CheckReserve().ok());
  const ReserveScope scope;
  std::thread([] {
    EXPECT_EQ(nullptr, MemoryReserve::Take(100, 16, NoSystem));
    EXPECT_TRUE(CheckReserve().ok());
  }).join();
  EXPECT_TRUE(CheckReserve().ok());
}

TEST(MemoryReserve, RemembersAFailureUntilTheOuterScopeEnds) {
  {
    const ReserveScope outer;
    {
      const ReserveScope inner;
      void* const block = MemoryReserve::Take(100, 1, NoSystem);
      EXPECT_TRUE(MemoryReserve::Holds(block));
      EXPECT_FALSE(MemoryReserve::Holds(&block));
      EXPECT_FALSE(MemoryReserve::Holds(nullptr));
      EXPECT_EQ(100u, MemoryReserve::SizeOf(block));
      MemoryReserve::Give(block);
    }
    EXPECT_EQ(absl::StatusCode::kResourceExhausted, CheckReserve().code());
  }
  const ReserveScope next;
  EXPECT_TRUE(CheckReserve().ok());
  MemoryReserve::Note();
  EXPECT_FALSE(CheckReserve().ok());
}

TEST(MemoryReserve, BlocksAreApartAlignedAndComeBack) {
  std::mt19937 random(7);
  struct Held {
    unsigned char* block;
    size_t size;
    unsigned char mark;
  };
  const ReserveScope scope;
  std::vector<Held> held;
  for (int i = 0; i < 20000; ++i) {
    if (held.size() > 300 || (!held.empty() && random() % 2 == 0)) {
      const size_t at = random() % held.size();
      const Held& one = held[at];
      ASSERT_EQ(static_cast<ptrdiff_t>(one.size), std::count(one.block, one.block + one.size, one.mark));
      MemoryReserve::Give(one.block);
      held[at] = held.back();
      held.pop_back();
      continue;
    }
    const size_t size = random() % (random() % 20 == 0 ? 100000 : 300), align = size_t{1} << random() % 9;
    auto* const block = static_cast<unsigned char*>(MemoryReserve::Take(size, align, NoSystem));
    ASSERT_NE(nullptr, block);
    ASSERT_EQ(0u, reinterpret_cast<uintptr_t>(block) % std::max<size_t>(align, 16));
    ASSERT_EQ(size, MemoryReserve::SizeOf(block));
    held.push_back({block, size, static_cast<unsigned char>(random())});
    std::memset(block, held.back().mark, size);
  }
  for (const Held& one : held) MemoryReserve::Give(one.block);
  EXPECT_EQ(0u, MemoryReserve::live());
}

std::atomic<int> g_asked{0};
alignas(64) char g_room[64];
void* SystemAfterThree(size_t align, size_t size) {
  EXPECT_EQ(sizeof(void*), align);
  EXPECT_EQ(size_t{4} << 20, size);
  return ++g_asked < 3 ? nullptr : g_room;
}

TEST(MemoryReserve, AThreadThatUsedItUpSaysSoAndWaits) {
  ReserveScope::Starving starving;
  const ReserveScope scope(&starving);
  EXPECT_EQ(&starving, ReserveScope::starving());
  std::vector<void*> blocks;
  for (size_t bytes = 0; bytes + (size_t{5} << 20) < kReserveBytes; bytes += size_t{5} << 20) {
    blocks.push_back(MemoryReserve::Take(size_t{4} << 20, 1, NoSystem));
  }
  while (!starving.ever) {
    void* const block = MemoryReserve::Take(size_t{4} << 20, 1, SystemAfterThree);
    if (block != g_room) blocks.push_back(block);
  }
  EXPECT_EQ(3, g_asked);
  EXPECT_FALSE(starving.now);
  // What others give back serves as well.
  std::thread giving([last = blocks.back(), &starving] {
    while (!starving.now) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MemoryReserve::Give(last);
  });
  blocks.back() = MemoryReserve::Take(size_t{4} << 20, 1, NoSystem);
  giving.join();
  for (void* block : blocks) MemoryReserve::Give(block);
  EXPECT_EQ(0u, MemoryReserve::live());
  EXPECT_FALSE(CheckReserve().ok());
}

TEST(MemoryReserve, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < 200; ++round) {
        const ReserveScope scope;
        EXPECT_TRUE(CheckReserve().ok());
        void* blocks[20];
        for (int i = 0; i < 20; ++i) {
          blocks[i] = MemoryReserve::Take(static_cast<size_t>(i) * 10, 1, NoSystem);
          std::memset(blocks[i], t, static_cast<size_t>(i) * 10);
        }
        for (void* block : blocks) MemoryReserve::Give(block);
        EXPECT_FALSE(CheckReserve().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0u, MemoryReserve::live());
}

}  // namespace
}  // namespace weft
