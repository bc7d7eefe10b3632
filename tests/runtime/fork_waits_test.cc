// Forks wait for work in libraries that have locks of their own.
#include "src/runtime/fork_waits.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace weft {
namespace {

std::atomic<int> g_at_work{0};  // threads that hold a ForkWaits in NobodyWorksWhileTheProcessIsCopied

// Forks; the child must find nobody at work and makes a ForkWaits, which must not hang. False where it does not end well.
bool Forks() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    { const ForkWaits in_the_child; }
    _exit(g_at_work.load() == 0 ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ForkWaits, AForkOfAnotherThreadWaitsForTheLastOne) {
  auto first = std::make_unique<ForkWaits>();
  std::atomic<bool> begins{false}, over{false};
  std::thread other([&] {
    begins = true;
    EXPECT_TRUE(Forks());
    over = true;
  });
  while (!begins) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(over.load());
  auto second = std::make_unique<ForkWaits>();  // does not wait for the fork that waits for this thread
  first.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(over.load());
  second.reset();
  other.join();
}

// Threads that work without a pause hold a fork up no longer than one piece of work takes, and none is in the middle of one.
TEST(ForkWaits, NobodyWorksWhileTheProcessIsCopied) {
  std::atomic<bool> stop{false};
  std::thread busy[3];
  for (std::thread& each : busy) {
    each = std::thread([&] {
      while (!stop) {
        const ForkWaits work;
        ++g_at_work;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        --g_at_work;
      }
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Forks());
  stop = true;
  for (std::thread& each : busy) each.join();
}

TEST(ForkWaits, ItsOwnThreadMayFork) {
  const ForkWaits work;
  EXPECT_TRUE(Forks());
}

}  // namespace
}  // namespace weft
