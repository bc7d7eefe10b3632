// The engine on the fake plugin whose devices do not end what they began.
#include <thread>

#include "src/runtime/clock.h"
#include "tests/pjrt/fake_world.h"

namespace weft::pjrt {
namespace {

TEST(PjrtFake, ALaunchThatDoesNotEndIsGivenUp) {
  World w({}, Fake("devices=2", {.launch_deadline_ms = 200}));
  T x = w.Vector({1, 2}), taken = w.Vector({5, 6}), other = w.F32({2}, {3, 4}, 1);
  EXPECT_THAT(w.Read(taken), ElementsAre(5, 6)) << "all is there";
  Faults("devices=2;hangs=0");
  T y = w.Op("add", {x, x});
  Assign(w, taken, w.Tmp("add", {taken, x}));
  constexpr char kText[] = "a launch on pjrt:0 that had taken over 1 of 2 buffers had not ended after 200 ms, the option launch_deadline_ms";
  const absl::Status outcome = (*w.engine->Sync())->Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome)) << outcome;
  EXPECT_EQ(outcome.message(), kText);
  EXPECT_EQ(ReadOf(w, y).message(), kText);
  EXPECT_EQ(ReadOf(w, taken).message(), kText);
  EXPECT_EQ(ReadOf(w, w.Op("mul", {y, y})).message(), kText) << "what depends on it";
  EXPECT_THAT(w.Read(w.Op("add", {other, other})), ElementsAre(6, 8)) << "what is on another device";
  EXPECT_THAT(ReadOf(w, w.Op("mul", {x, x})).message(), HasSubstr("a launch on pjrt:0 had not ended after 200 ms")) << "in its turn";
  Faults("devices=2");
  EXPECT_THAT(w.Read(w.Op("sub", {x, w.Number(1)})), ElementsAre(0, 1)) << "what was not taken over";
  EXPECT_EQ(ReadOf(w, y).message(), kText) << "nobody takes the outcome back";
  Assign(w, taken, x);
  EXPECT_THAT(w.Read(taken), ElementsAre(1, 2)) << "what was assigned anew";
}

TEST(PjrtFake, ADeadlineIsOfEachLaunchNotOfTheQueue) {
  World w({}, Fake("", {.launch_deadline_ms = 1000}));
  T x = w.Vector({0});
  Faults("slow_ms=40");
  for (int i = 0; i < 30; ++i) {
    Assign(w, x, w.Tmp("add", {x, w.Number(1)}));
    ASSERT_TRUE(w.engine->Sync().ok());
  }
  const int64_t start = MonotonicNow();
  EXPECT_THAT(w.Read(x), ElementsAre(30));
  EXPECT_GT(MonotonicNow() - start, int64_t{1000} * 1'000'000);
}

TEST(PjrtFake, ACopyThatDoesNotEndIsGivenUpAndMayBeTriedAgain) {
  World w({}, Fake("", {.launch_deadline_ms = 500}));
  T x = w.Vector({1, 2});
  EXPECT_THAT(w.Read(x), ElementsAre(1, 2));
  Faults("hangs=0");
  EXPECT_EQ(ReadOf(w, x), absl::DeadlineExceededError("a copy of 8 bytes from pjrt:0 had not ended after 500 ms, the option launch_deadline_ms"));
  std::vector<float> one(1);
  EXPECT_THAT(w.engine->ReadBytes(x.get(), 4, std::as_writable_bytes(std::span(one))).message(), HasSubstr("a copy of 8 bytes from pjrt:0 had"));
  EXPECT_THAT(ReadOf(w, w.Vector({3})).message(), HasSubstr("a copy to pjrt:0 had not ended after 500 ms"));
  Faults("");
  EXPECT_THAT(w.Read(x), ElementsAre(1, 2));
}

TEST(PjrtFake, ACancelEndsTheWaitForALaunchThatDoesNotEndAndNothingElse) {
  World w({}, Fake());
  T x = w.Vector({1, 2}), taken = w.Vector({5, 6});
  Faults("hangs=0");
  T y = w.Op("add", {x, x});
  Assign(w, taken, w.Tmp("add", {taken, x}));
  const Since launched("PJRT_LoadedExecutable_Execute");
  std::thread other([&] {
    while (launched() == 0) std::this_thread::yield();
    w.engine->services().Cancel();
  });
  EXPECT_EQ(ReadOf(w, y), absl::CancelledError("cancelled by weft_cancel"));
  other.join();
  Faults("");
  EXPECT_THAT(w.Read(y), ElementsAre(2, 4)) << "the launch ran on";
  EXPECT_THAT(w.Read(taken), ElementsAre(6, 8));
}

TEST(PjrtFake, AContextMayEndBeforeItsDevice) {
  // The fake's client would wait for its thread, as others do.
  const Since destroyed("PJRT_Client_Destroy");
  {
    World w({}, Fake("", {.launch_deadline_ms = 500}));
    T x = w.Vector({1, 2});
    Faults("hangs=0");
    T y = w.Op("add", {x, x});
    ASSERT_TRUE(w.engine->Sync().ok());
    EXPECT_TRUE(absl::IsDeadlineExceeded(w.engine->Close()));
  }
  EXPECT_EQ(destroyed(), 0);
  Faults("");
}

}  // namespace
}  // namespace weft::pjrt
