// The annotated lock: what it does is std::mutex's, so only what the wrapper adds is looked at.
#include "src/runtime/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

bool FreeForOthers(Mutex& mutex) {
  bool free = false;
  std::thread([&] {
    if (!mutex.TryLock()) return;
    free = true;
    mutex.Unlock();
  }).join();
  return free;
}

TEST(MutexLock, LetsOthersInBetweenUnlockAndLockAndAfterItsScope) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    EXPECT_FALSE(FreeForOthers(mutex));
    lock.Unlock();
    EXPECT_TRUE(FreeForOthers(mutex));
    lock.Lock();
    EXPECT_FALSE(FreeForOthers(mutex));
  }
  EXPECT_TRUE(FreeForOthers(mutex));
  {
    MutexLock lock(mutex);
    lock.Unlock();
  }
  EXPECT_TRUE(FreeForOthers(mutex));
}

TEST(CondVar, WaitsWithTheLockGivenUpAndComesBackWithIt) {
  Mutex mutex;
  CondVar changed;
  bool asked = false, answered = false;
  std::thread other([&] {
    MutexLock lock(mutex);
    while (!asked) changed.Wait(mutex);
    answered = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(mutex);
    asked = true;
    changed.NotifyAll();
    const auto limit = Clock::now() + std::chrono::seconds(60);
    while (!answered && changed.WaitUntil(mutex, limit)) {
    }
    EXPECT_TRUE(answered);
    EXPECT_FALSE(FreeForOthers(mutex));
  }
  other.join();
}

TEST(CondVar, GivesUpAtItsDeadlineAndNotBefore) {
  Mutex mutex;
  CondVar changed;
  const auto deadline = Clock::now() + std::chrono::milliseconds(20);
  MutexLock lock(mutex);
  while (changed.WaitUntil(mutex, deadline)) {
  }
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_FALSE(FreeForOthers(mutex));
}

}  // namespace
}  // namespace weft
