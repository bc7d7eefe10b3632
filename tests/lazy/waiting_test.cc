// Waiting for events and values: any timeout, given up when a cancel comes, never for ever in the child of a fork. The fake
// backend's thread stands still until the test lets it go.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/lazy/world.h"

namespace weft::lazy {
namespace {

constexpr int64_t kFor = -1;
[[maybe_unused]] constexpr char kForked[] =
    "the context was used before fork and its threads did not come along; make a new context in the child";

// A launch that is on its way until Go.
struct Waiting : ::testing::Test {
  World w{{}, 1, true};
  Ref<Event> gate = MakeRef<Event>();
  T sum;
  Ref<Event> event;

  void Start() {
    w.backend->Post([gate = gate] { (void)gate->Wait(); });
    T x = w.Vector({1, 2});
    sum = w.Op("add", {x, x});
    Tensor* list[] = {sum.get()};
    event = w.engine->Eval(list).value();
  }
  void Go() { gate->Complete(absl::OkStatus()); }
  absl::Status Read() {
    float host[2];
    return w.engine->ToHost(sum.get(), std::as_writable_bytes(std::span(host)));
  }
};

TEST_F(Waiting, EndsWhenACancelComesAndTheWorkGoesOn) {
  Start();
  EXPECT_EQ(w.engine->services().WaitFor(*event, 1000), absl::DeadlineExceededError("the event was not done after 1000 ns"));
  w.engine->services().Cancel();
  const absl::Status cancelled = absl::CancelledError("cancelled by weft_cancel");
  EXPECT_EQ(w.engine->services().WaitFor(*event, kFor), cancelled);  // came before
  EXPECT_EQ(w.engine->services().WaitFor(*event, 0), absl::DeadlineExceededError("the event was not done after 0 ns"));  // once
  w.engine->services().Cancel();
  EXPECT_EQ(Read(), cancelled);
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    w.engine->services().Cancel();
  });
  EXPECT_EQ(w.engine->services().WaitFor(*event, kFor), cancelled);  // comes meanwhile
  canceller.join();
  Go();
  EXPECT_EQ(w.engine->services().WaitFor(*event, kFor), absl::OkStatus());
  EXPECT_THAT(w.Read(sum), ::testing::ElementsAre(2, 4));
  w.engine->services().Cancel();
  EXPECT_EQ(w.engine->services().WaitFor(*event, kFor), absl::OkStatus());  // what has happened needs no wait
  EXPECT_EQ(w.engine->services().CheckCancelled(w.engine->services().cancels()), cancelled);
  EXPECT_EQ(w.engine->services().CheckCancelled(w.engine->services().cancels()), absl::OkStatus());
}

TEST_F(Waiting, TakesTimeoutsLongerThanClocksReachAsForEver) {
  Start();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Go();
  });
  EXPECT_EQ(event->Wait(INT64_MAX), absl::OkStatus());
  EXPECT_EQ(w.engine->services().WaitFor(*event, INT64_MAX), absl::OkStatus());
  later.join();
}

TEST_F(Waiting, GivesBackWhatOwnersLent) {
  Start();
  bool released = false;
  float data[2] = {1, 2};
  T foreign = w.engine->Adopt(nullptr, DType::kF32, std::array<int64_t, 1>{2}, data, [&] { released = true; }).value();
  T twice = w.Op("add", {foreign, foreign});
  foreign = nullptr;
  Tensor* list[] = {twice.get()};
  event = w.engine->Eval(list).value();
  Go();
  EXPECT_EQ(w.engine->services().WaitFor(*event, kFor), absl::OkStatus());
  EXPECT_TRUE(released);
}

#if !defined(WEFT_SANITIZED)  // a forked child of a threaded process is outside what the sanitizers support
TEST_F(Waiting, InTheChildOfAForkSaysThatNothingRunsThere) {
  Start();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const bool both = w.engine->services().WaitFor(*event, kFor).message() == kForked && Read().message() == kForked;
    _exit(both ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  Go();
  EXPECT_EQ(w.engine->services().WaitFor(*event, kFor), absl::OkStatus());
}
#endif

}  // namespace
}  // namespace weft::lazy
