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

// Forks; the child makes a ForkWaits, which must not hang, and ends. False where it does not end well.
bool Forks() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    { const ForkWaits in_the_child; }
    _exit(0);
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

// Threads that work without a pause hold a fork up no longer than one piece of work takes.
TEST(ForkWaits, NobodyBeginsWhileAForkWaits) {
  std::atomic<bool> stop{false};
  std::atomic<int> pieces{0};
  std::thread busy[3];
  for (std::thread& each : busy) {
    each = std::thread([&] {
      while (!stop) {
        const ForkWaits work;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++pieces;
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    const int before = pieces;
    EXPECT_TRUE(Forks());
    EXPECT_LE(pieces - before, 100);
  }
  stop = true;
  for (std::thread& each : busy) each.join();
}

TEST(ForkWaits, ItsOwnThreadMayFork) {
  const ForkWaits work;
  EXPECT_TRUE(Forks());
}

}  // namespace
}  // namespace weft
