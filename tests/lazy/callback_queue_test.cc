// What waits for the caller's own thread: order, the descriptor, what callbacks add, records that nobody takes, the end.
#include "src/lazy/service/callback_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <thread>

#include "src/lazy/service/services.h"

namespace weft::lazy {
namespace {

std::shared_ptr<CallbackQueue> New() {
  auto queue = CallbackQueue::Create();
  EXPECT_TRUE(queue.ok()) << queue.status();
  return *std::move(queue);
}
bool Readable(const CallbackQueue& queue) {
  pollfd p = {.fd = queue.fd(), .events = POLLIN, .revents = 0};
  return poll(&p, 1, 0) == 1;
}
CallbackQueue::One One(std::function<void()> f) {
  CallbackQueue::One one;
  one.push_back(std::move(f));
  return one;
}
void NoneLeftOut(size_t left_out) { ADD_FAILURE() << left_out; }

TEST(CallbackQueue, RunsInOrderWhatWaitsAndNotWhatThatAdds) {
  const auto queue = New();
  std::string seen;
  EXPECT_FALSE(Readable(*queue));
  queue->Add(One([&] {
    seen += 'a';
    queue->Add(One([&] { seen += 'c'; }));
  }));
  std::thread([&] { queue->AddRecord([&] { seen += 'b'; }); }).join();
  EXPECT_EQ(seen, "");
  EXPECT_TRUE(Readable(*queue));
  EXPECT_EQ(queue->Run(NoneLeftOut), 2u);
  EXPECT_EQ(seen, "ab");
  EXPECT_TRUE(Readable(*queue));
  EXPECT_EQ(queue->Run(NoneLeftOut), 1u);
  EXPECT_EQ(seen, "abc");
  EXPECT_FALSE(Readable(*queue));
  EXPECT_EQ(queue->Run(NoneLeftOut), 0u);
}

TEST(CallbackQueue, LeavesRecordsOutThatNobodyTakesButNoRelease) {
  const auto queue = New();
  size_t records = 0, releases = 0, left_out = 0;
  for (int i = 0; i < 5000; ++i) {
    queue->AddRecord([&] { ++records; });
    queue->Add(One([&] { ++releases; }));
  }
  EXPECT_EQ(queue->Run([&](size_t n) { left_out = n; }), 9096u);
  EXPECT_EQ(records, 4096u);
  EXPECT_EQ(releases, 5000u);
  EXPECT_EQ(left_out, 904u);
  queue->AddRecord([&] { ++records; });
  EXPECT_EQ(queue->Run(NoneLeftOut), 1u);
}

TEST(CallbackQueue, HasNothingWaitAfterItsEnd) {
  const auto queue = New();
  int ran = 0;
  queue->Add(One([&] { ++ran; }));
  queue->Close();
  EXPECT_EQ(ran, 1);
  queue->Add(One([&] { ++ran; }));
  queue->AddRecord([&] { ++ran; });
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(queue->Run(NoneLeftOut), 0u);
}

// What an owner wants done waits wherever the memory was let go of: under a lock, on a thread of the library's, in another's call.
TEST(CallbackQueue, HoldsReleasesOfServices) {
  const auto queue = New();
  Metrics metrics;
  Services services(LogHook(), &metrics, [] { return false; }, queue);
  int released = 0;
  services.Later([&] { ++released; })();
  services.RunReleases();
  EXPECT_EQ(released, 0);
  Services::Locked() = true;
  services.Later([&] { ++released; })();
  Services::Locked() = false;
  EXPECT_EQ(released, 0);
  // In the queue's own turn at once, unless a lock is held.
  queue->Add(One([&] {
    services.Later([&] { ++released; })();
    EXPECT_EQ(released, 3);
    Services::Locked() = true;
    services.Later([&] { ++released; })();
    Services::Locked() = false;
    EXPECT_EQ(released, 3);
  }));
  EXPECT_EQ(queue->Run(NoneLeftOut), 3u);
  EXPECT_EQ(queue->Run(NoneLeftOut), 1u);
  EXPECT_EQ(released, 4);
}

TEST(CallbackQueue, HasRecordsAtOnceFromAHookThatTakesThemAnywhere) {
  Metrics metrics;
  int records = 0;
  LogHook hook([&](LogLevel, std::string_view) { ++records; });
  hook.anywhere = true;
  Services services(std::move(hook), &metrics, [] { return false; });
  services.Log(LogLevel::kInfo, "here");
  EXPECT_EQ(records, 1);
  services.FlushLog();
  EXPECT_EQ(records, 1);
}

}  // namespace
}  // namespace weft::lazy
