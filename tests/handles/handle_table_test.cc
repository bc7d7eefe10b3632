// The handle table itself: pins, borrowing, who ends an object, generations, limits.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/c_api/handles.h"

namespace weft::c_api {
namespace {

using testing::HasSubstr;

// Says when it dies.
class Watched final : public RefCounted {
 public:
  explicit Watched(std::atomic<int>* ended) : ended_(ended) {}

 private:
  ~Watched() override { ended_->fetch_add(1); }
  std::atomic<int>* const ended_;
};

void* NewWatched(std::atomic<int>* ended, HandleType type = HandleType::kBlob, const void* owner = nullptr) {
  return NewHandle(type, new Watched(ended), owner);
}

TEST(HandleTable, TheLastReferenceEndsTheObject) {
  std::atomic<int> ended{0};
  void* handle = NewWatched(&ended);
  EXPECT_EQ(TypeOf(handle), HandleType::kBlob);
  EXPECT_TRUE(RetainHandle(handle, HandleType::kBlob));
  EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
  EXPECT_EQ(ended, 0);
  EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
  EXPECT_EQ(ended, 1);
  const int64_t bad = BadReleases();
  EXPECT_FALSE(ReleaseHandle(handle, HandleType::kBlob));
  EXPECT_FALSE(RetainHandle(handle, HandleType::kBlob));
  EXPECT_EQ(BadReleases(), bad + 2);
  EXPECT_EQ(TypeOf(handle), HandleType::kFree);
}

TEST(HandleTable, APinKeepsTheObjectOfAReleasedHandle) {
  std::atomic<int> ended{0};
  void* handle = NewWatched(&ended);
  {
    const Pin<Watched> first = FindAs<Watched>(handle, HandleType::kBlob);
    Pin<Watched> second = FindAs<Watched>(handle, HandleType::kBlob);
    ASSERT_TRUE(first && second);
    EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
    // Nobody finds it any more, and it is still there.
    EXPECT_FALSE(FindAs<Watched>(handle, HandleType::kBlob));
    EXPECT_FALSE(RetainHandle(handle, HandleType::kBlob));
    EXPECT_FALSE(ReleaseHandle(handle, HandleType::kBlob));
    EXPECT_THAT(BadHandle(handle, HandleType::kBlob, "blob").message(), HasSubstr("that has been released"));
    EXPECT_EQ(ended, 0);
    second = Pin<Watched>();
    EXPECT_EQ(ended, 0);
  }
  EXPECT_EQ(ended, 1);
}

TEST(HandleTable, AReferenceTakenFromAPinOutlivesIt) {
  std::atomic<int> ended{0};
  void* handle = NewWatched(&ended);
  Ref<Watched> kept = FindAs<Watched>(handle, HandleType::kBlob).Share();
  EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
  EXPECT_EQ(ended, 0);
  kept = nullptr;
  EXPECT_EQ(ended, 1);
}

TEST(HandleTable, ASlotIsUsedAgainUnderAnotherGeneration) {
  std::atomic<int> ended{0};
  std::vector<void*> old;
  for (int i = 0; i < 100; ++i) {
    old.push_back(NewWatched(&ended));
    EXPECT_TRUE(ReleaseHandle(old.back(), HandleType::kBlob));
  }
  void* handle = NewWatched(&ended);
  for (void* stale : old) {
    EXPECT_NE(stale, handle);
    EXPECT_FALSE(FindAs<Watched>(stale, HandleType::kBlob));
  }
  EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
}

TEST(HandleTable, TypesAndForeignPointersAreToldApart) {
  std::atomic<int> ended{0};
  void* handle = NewWatched(&ended);
  int local = 0;
  for (const void* odd : std::initializer_list<const void*>{nullptr, &local, static_cast<char*>(handle) + 1,
                                                            reinterpret_cast<void*>(~uintptr_t{0})}) {
    EXPECT_FALSE(FindAs<Watched>(odd, HandleType::kBlob));
    EXPECT_EQ(Borrow(odd, HandleType::kBlob, nullptr), nullptr);
    EXPECT_EQ(TypeOf(odd), HandleType::kFree);
  }
  EXPECT_FALSE(FindAs<Watched>(handle, HandleType::kTree));
  EXPECT_FALSE(ReleaseHandle(handle, HandleType::kTree));
  EXPECT_THAT(BadHandle(handle, HandleType::kTree, "tree").message(), HasSubstr("tree is a weft_blob"));
  EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
  EXPECT_EQ(ended, 1);
}

TEST(HandleTable, BorrowingAsksForTheOwner) {
  std::atomic<int> ended{0};
  const int here = 0, there = 0;
  void* handle = NewWatched(&ended, HandleType::kBlob, &here);
  EXPECT_NE(Borrow(handle, HandleType::kBlob, &here), nullptr);
  EXPECT_EQ(Borrow(handle, HandleType::kBlob, &there), nullptr);
  EXPECT_EQ(Borrow(handle, HandleType::kTree, &here), nullptr);
  {
    const Pin<Watched> pin = FindAs<Watched>(handle, HandleType::kBlob);
    EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
    EXPECT_EQ(Borrow(handle, HandleType::kBlob, &here), nullptr);
  }
  EXPECT_EQ(ended, 1);
}

TEST(HandleTable, WhoWaitsEndsTheObjectAfterTheLastPin) {
  std::atomic<int> ended{0};
  std::atomic<bool> released{false};
  void* handle = NewWatched(&ended);
  Pin<Watched> pin = FindAs<Watched>(handle, HandleType::kBlob);
  std::thread releaser([&] {
    EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob, LastOne::kWaits));
    EXPECT_EQ(ended, 1);
    released = true;
  });
  while (TypeOf(handle) != HandleType::kFree) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(released);
  EXPECT_EQ(ended, 0);
  pin = Pin<Watched>();
  releaser.join();
  EXPECT_TRUE(released);
  EXPECT_EQ(ended, 1);
}

TEST(HandleTable, ASignalHandlerLeavesTheEndToOthers) {
  std::atomic<int> ended{0};
  void* handle = NewWatched(&ended, HandleType::kContext);
  Pin<Watched> pin = FindAs<Watched>(handle, HandleType::kContext);
  EXPECT_TRUE(ReleaseHandle(handle, HandleType::kContext));
  UnpinInSignal(pin.Release());
  EXPECT_EQ(ended, 0);
  void* next = NewWatched(&ended, HandleType::kContext);
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(ReleaseHandle(next, HandleType::kContext));
  EXPECT_EQ(ended, 2);
}

TEST(HandleTable, PinsRunOutWithAClearError) {
  std::atomic<int> ended{0};
  void* handle = NewWatched(&ended);
  {
    std::vector<Pin<Watched>> pins;
    for (int i = 0; i < 32767; ++i) pins.push_back(FindAs<Watched>(handle, HandleType::kBlob));
    EXPECT_TRUE(pins.back());
    EXPECT_FALSE(FindAs<Watched>(handle, HandleType::kBlob));
    const absl::Status status = BadHandle(handle, HandleType::kBlob, "blob");
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    EXPECT_EQ(status.message(), "blob is a weft_blob that 32767 calls in progress use already");
  }
  EXPECT_TRUE(FindAs<Watched>(handle, HandleType::kBlob));
  EXPECT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
  EXPECT_EQ(ended, 1);
}

TEST(HandleTable, AHandleWithAllItsReferencesLivesForEver) {
  static std::atomic<int> ended{0};
  void* handle = NewWatched(&ended);
  constexpr int kMost = (1 << 21) - 1;
  for (int i = 0; i < kMost + 5; ++i) ASSERT_TRUE(RetainHandle(handle, HandleType::kBlob));
  for (int i = 0; i < kMost + 50; ++i) ASSERT_TRUE(ReleaseHandle(handle, HandleType::kBlob));
  EXPECT_EQ(ended, 0);
  const Pin<Watched> pin = FindAs<Watched>(handle, HandleType::kBlob);
  EXPECT_TRUE(pin);
}

TEST(HandleTable, LiveHandlesAreCounted) {
  std::atomic<int> ended{0};
  const int64_t before = LiveHandles(HandleType::kReader);
  std::vector<void*> handles;
  for (int i = 0; i < 5000; ++i) handles.push_back(NewWatched(&ended, HandleType::kReader));
  EXPECT_EQ(LiveHandles(HandleType::kReader), before + 5000);
  for (void* handle : handles) EXPECT_TRUE(ReleaseHandle(handle, HandleType::kReader));
  EXPECT_EQ(LiveHandles(HandleType::kReader), before);
  EXPECT_EQ(ended, 5000);
}

// Everybody finds, pins, retains and releases the same few handles; each object ends once, and never under a pin.
TEST(HandleTable, ManyThreadsOverFewHandles) {
  constexpr int kHandles = 4, kThreads = 4, kRounds = 20000;
  struct Object final : RefCounted {
    explicit Object(std::atomic<int>* ended) : ended(ended) {}
    ~Object() override { alive = 0, ended->fetch_add(1); }
    std::atomic<int>* const ended;
    std::atomic<int> alive{1};
  };
  std::atomic<int> ended{0}, made{0}, wrong{0};
  std::atomic<void*> places[kHandles] = {};
  const auto work = [&](unsigned seed) {
    for (int round = 0; round < kRounds; ++round) {
      seed = seed * 1664525 + 1013904223;
      std::atomic<void*>& place = places[seed >> 16 & (kHandles - 1)];
      switch (seed >> 24 & 3) {
        case 0: {
          ++made;
          void* old = place.exchange(NewHandle(HandleType::kBlob, new Object(&ended)));
          if (old != nullptr && !ReleaseHandle(old, HandleType::kBlob)) ++wrong;
          break;
        }
        case 1:
          if (void* handle = place.load(); handle != nullptr && RetainHandle(handle, HandleType::kBlob)) {
            const Pin<Object> pin = FindAs<Object>(handle, HandleType::kBlob);
            if (!pin || pin->alive != 1) ++wrong;
            // Its own reference: whoever replaced the handle meanwhile has dropped another.
            if (!ReleaseHandle(handle, HandleType::kBlob)) ++wrong;
          }
          break;
        default: {
          const Pin<Object> pin = FindAs<Object>(place.load(), HandleType::kBlob);
          if (pin && pin->alive != 1) ++wrong;
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, 77u + static_cast<unsigned>(i));
  for (std::thread& thread : threads) thread.join();
  for (std::atomic<void*>& place : places) ReleaseHandle(place.load(), HandleType::kBlob);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ended, made);
}

}  // namespace
}  // namespace weft::c_api
