// What others do while one thread waits for a compilation or for room: they record, release, assign, read and cancel, and
// nothing that they do is lost or computed twice. The compiler stands still until the test lets it go.
#include <thread>

#include "src/lazy/run/launcher.h"
#include "tests/lazy/world.h"

namespace weft::lazy {
namespace {

const absl::Status kCancelled = absl::CancelledError("cancelled by weft_cancel");

struct Compiling : ::testing::Test {
  explicit Compiling(Options options = {}) : w(options) {
    w.backend->on_compile = [this] {
      started.fetch_add(1);
      started.notify_all();
      (void)gate->Wait();
    };
  }
  // Until a compilation stands at the gate.
  void AwaitCompiler() {
    while (started == 0) started.wait(0);
  }
  void Go() { gate->Complete(absl::OkStatus()); }
  absl::Status Barrier() { return w.engine->Sync().status(); }

  World w;
  Ref<Event> gate = MakeRef<Event>();
  std::atomic<int> started{0};
};

TEST_F(Compiling, HoldsNobodyUpWhoRecordsOrReleasesAndACancelEndsTheWait) {
  T x = w.Vector({1, 2});
  T y = w.Op("exp", {x});
  absl::Status status;
  std::thread waits([&] { status = Barrier(); });
  AwaitCompiler();
  const int64_t bytes = w.backend->live_bytes;
  {
    T z = x, lent = w.F32({1000}, std::vector<float>(1000));
    for (int i = 0; i < 10'000; ++i) z = w.Op("add", {z, x});
    EXPECT_EQ(z->dims(), Dims{2});
    EXPECT_EQ(w.backend->live_bytes, bytes + 4000);
  }
  EXPECT_EQ(w.backend->live_bytes, bytes);
  w.engine->services().Cancel();
  waits.join();
  EXPECT_EQ(status, kCancelled);
  EXPECT_FALSE(gate->done());
  // What was being compiled is kept.
  Go();
  w.Sync();
  EXPECT_EQ(started, 1);
  EXPECT_FLOAT_EQ(w.Read(y)[0], std::exp(1.0f));
}

TEST_F(Compiling, HappensOnceForAllWhoWantTheProgramAndSoDoesTheLaunch) {
  T x = w.Vector({1, 2});
  T y = w.Op("add", {x, x});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      if (i % 2 == 0) return w.Sync();
      EXPECT_THAT(w.Read(y), ElementsAre(2, 4));
    });
  }
  AwaitCompiler();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Go();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(started, 1);
  EXPECT_EQ(w.Count(Counter::kLaunches), 1);
}

TEST_F(Compiling, LeavesToTheNextBarrierWhatIsRecordedMeanwhile) {
  T x = w.Vector({1, 2});
  T y = w.Op("add", {x, x});
  std::thread waits([&] { w.Sync(); });
  AwaitCompiler();
  T later = w.Op("mul", {y, x});
  T temporary = w.Tmp("neg", {y});
  T assigned = w.Vector({0, 0});
  ASSERT_TRUE(w.engine->Assign(assigned.get(), w.Tmp("neg", {x}).get()).ok());
  Go();
  waits.join();
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 1);
  EXPECT_EQ(w.Count(Counter::kTemporariesExpired), 0);
  EXPECT_THAT(w.Read(w.Op("add", {temporary, later})), ElementsAre(0, 4));
  w.Sync();
  EXPECT_THAT(w.Read(assigned), ElementsAre(-1, -2));
}

// The buffer was free for the taking when the barrier began. The fake backend ruins what is taken over.
TEST_F(Compiling, TakesNothingOverThatHasFoundAUserMeanwhile) {
  T p = w.Vector({1, 2});
  T alias = w.engine->Alias(p.get()).value();
  T next = w.Tmp("add", {p, w.Number(1)});
  ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
  std::thread waits([&] { w.Sync(); });
  AwaitCompiler();
  T twice = w.Op("add", {alias, alias});
  alias = nullptr;
  Go();
  waits.join();
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 0);
  EXPECT_THAT(w.Read(twice), ElementsAre(2, 4));
  EXPECT_THAT(w.Read(p), ElementsAre(2, 3));
}

// One waits for the value of p before the assignment, the other's barrier would take its buffer over.
TEST_F(Compiling, KeepsWhatAWaitingReadIsMadeOf) {
  T p = w.Vector({1, 2});
  std::vector<float> read;
  T alias = w.engine->Alias(p.get()).value();
  std::thread reads([&] { read = w.Read(w.Op("add", {alias, alias})); });
  AwaitCompiler();
  alias = nullptr;
  T next = w.Tmp("add", {p, w.Number(1)});
  ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
  std::thread waits([&] { w.Sync(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Go();
  waits.join();
  reads.join();
  EXPECT_THAT(read, ElementsAre(2, 4));
  EXPECT_THAT(w.Read(p), ElementsAre(2, 3));
}

// What stands between p and the value that is waited for becomes known meanwhile, which hides p from whoever looks for leaves.
TEST_F(Compiling, KeepsTheLeavesOfAWaitingReadBehindWhatOthersHaveComputed) {
  const auto go_on = [&](const T& p, const T& between) {
    EXPECT_EQ(w.Read(between), w.Read(p));
    T next = w.Tmp("add", {p, w.Number(1)});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
    next = nullptr;
    w.Sync();
  };
  const auto between = [&](const T& p) { return w.Tmp("reshape", {p}, {ir::Ints{1, 2}}); };
  Go();
  {
    T p = w.Vector({1, 2});
    go_on(p, between(p));  // so that its programs are there
  }
  gate = MakeRef<Event>();
  started = 0;
  T p = w.Vector({1, 2});
  T middle = between(p);
  std::vector<float> read;
  std::thread reads([&] { read = w.Read(w.Tmp("exp", {middle})); });
  AwaitCompiler();
  go_on(p, middle);
  Go();
  reads.join();
  EXPECT_THAT(read, ElementsAre(std::exp(1.0f), std::exp(2.0f)));
  EXPECT_THAT(w.Read(p), ElementsAre(2, 3));
}

TEST_F(Compiling, OfTheSameProgramByTwoContextsOfOneThreadEachIsNobodysDeadlock) {
  World other;
  T a = w.Vector({1, 2}), b = other.Vector({3, 4});
  T sum = w.Op("add", {a, a});
  std::thread waits([&] { w.Sync(); });
  AwaitCompiler();
  EXPECT_THAT(other.Read(other.Op("add", {b, b})), ElementsAre(6, 8));
  Go();
  waits.join();
}

struct Limited : Compiling {
  static Options Ten() {
    Options options;
    options.max_pending_nodes = 10;
    return options;
  }
  Limited() : Compiling(Ten()) {}
};

TEST_F(Limited, AutomaticCutsHoldNobodyElseUpAndTheirCancelEndsTheOperation) {
  T x = w.Vector({1, 2});
  absl::Status status;
  std::thread records([&] {
    T y = x;
    for (int i = 0; i < 20 && status.ok(); ++i) {
      auto made = w.TryOp("add", {y, x});
      status = made.status();
      if (made.ok()) y = (*made)[0];
    }
  });
  AwaitCompiler();
  T z = x;
  for (int i = 0; i < 50; ++i) z = w.Op("mul", {z, x});  // five times as many as are cut
  EXPECT_EQ(started, 1);
  w.engine->services().Cancel();
  records.join();
  EXPECT_EQ(status, kCancelled);
  Go();
  for (int i = 0; i < 50; ++i) z = w.Op("mul", {z, x});
  EXPECT_GE(w.Count(Counter::kCutNodes), 1);
  EXPECT_EQ(w.Count(Counter::kCutsPostponed), 0);
  EXPECT_EQ(w.Read(z)[0], 1);
}

struct EagerCompiling : Compiling {
  static Options Now() {
    Options options;
    options.mode = Mode::kDebug;
    return options;
  }
  EagerCompiling() : Compiling(Now()) {}
};

TEST_F(EagerCompiling, DrawTheSameNumbersAgainWhenTheyWereCancelled) {
  T x = w.Vector(std::vector<float>(64, 1));
  const GeneratorState before = w.engine->generator();
  absl::Status status;
  std::thread draws([&] { status = w.TryOp("dropout", {x}).status(); });
  AwaitCompiler();
  EXPECT_EQ(w.engine->devices().size(), 1u);
  T leaf = w.Vector({1});  // others go on
  w.engine->services().Cancel();
  draws.join();
  EXPECT_EQ(status, kCancelled);
  EXPECT_EQ(w.engine->generator(), before);
  Go();
  EXPECT_EQ(w.Read(w.Op("dropout", {x})).size(), 64u);
  EXPECT_NE(w.engine->generator(), before);
}

TEST(Closing, WaitsForACompilationThatNobodyWaitsForAnyMore) {
  Ref<Event> gate = MakeRef<Event>();
  std::atomic<bool> compiled{false};
  std::thread later;
  {
    World w;
    std::atomic<bool> started{false};
    w.backend->on_compile = [&] {
      started = true;
      started.notify_all();
      (void)gate->Wait();
      compiled = true;
    };
    T x = w.Vector({1, 2});
    T y = w.Op("add", {x, x});
    std::thread waits([&] { EXPECT_EQ(w.engine->Sync().status(), kCancelled); });
    started.wait(false);
    w.engine->services().Cancel();
    waits.join();
    later = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate->Complete(absl::OkStatus());
    });
    EXPECT_TRUE(w.engine->Close().ok());
    EXPECT_TRUE(compiled);
    EXPECT_EQ(w.engine->Sync().status().code(), absl::StatusCode::kFailedPrecondition);
  }
  later.join();
}

// A loop that never waits would otherwise keep the inputs of every step it is ahead.
TEST(Ahead, AreSoManyLaunchesAndWhoWaitsForRoomHoldsNobodyUp) {
  World w({}, 1, /*asynchronous=*/true);
  Ref<Event> gate = MakeRef<Event>();
  w.backend->Post([&] { (void)gate->Wait(); });
  T x = w.Vector({1, 2});
  std::atomic<int> steps{0};
  std::thread loop([&] {
    for (int i = 0; i < 100; ++i) {
      T y = w.Op("add", {x, x});
      EXPECT_TRUE(w.engine->Sync().ok());
      ++steps;
    }
  });
  while (w.Count(Counter::kLaunches) < static_cast<int64_t>(MeshState::kAhead)) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(steps, static_cast<int>(MeshState::kAhead));
  T z = x;
  for (int i = 0; i < 100; ++i) z = w.Op("mul", {z, x});
  gate->Complete(absl::OkStatus());
  loop.join();
  EXPECT_EQ(steps, 100);
  EXPECT_EQ(w.Read(z)[0], 1);
}

// By the bytes of their results and of the next launch's, and two at any rate.
TEST(Ahead, AreTwoLaunchesOfLargeResults) {
  testing::FakeBackend backend;
  MeshState state({backend.devices()[0]}, {}, nullptr);
  constexpr double kMost = MeshState::kAheadBytes;
  const auto launch = [&](double bytes) {
    const size_t at = state.launches++ % MeshState::kAhead;
    state.result_bytes[at] = bytes;
    return state.events[at] = MakeRef<Event>();
  };
  EXPECT_EQ(Launcher::Backlog(state, 4 * kMost), nullptr);
  const Ref<Event> first = launch(2 * kMost);
  EXPECT_EQ(Launcher::Backlog(state, 4 * kMost), nullptr);
  const Ref<Event> second = launch(kMost / 2);
  EXPECT_EQ(Launcher::Backlog(state, 0).get(), first.get());
  first->Complete(absl::OkStatus());
  EXPECT_EQ(Launcher::Backlog(state, 4 * kMost), nullptr) << "one is ahead";
  const Ref<Event> third = launch(kMost / 2);
  EXPECT_EQ(Launcher::Backlog(state, 0), nullptr);
  EXPECT_EQ(Launcher::Backlog(state, 1).get(), second.get());
}

// A caller that is woken for each launch takes a processor from the kernels each time.
TEST(Ahead, AWaitForRoomLetsSeveralShortLaunchesEnd) {
  testing::FakeBackend backend;
  MeshState state({backend.devices()[0]}, {}, nullptr);
  for (Ref<Event>& event : state.events) event = MakeRef<Event>();
  const auto launch = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) state.events[state.launches++ % MeshState::kAhead] = MakeRef<Event>();
  };
  launch(static_cast<int64_t>(MeshState::kAhead));
  int64_t now = 5'000'000'000;
  const auto last_of = [&](uint64_t launches) {
    return state.events[(state.launches + launches - 1) % MeshState::kAhead].get();
  };
  EXPECT_EQ(Launcher::Backlog(state, 0).get(), last_of(1));
  state.Waited(now);
  EXPECT_EQ(Launcher::Backlog(state, 0).get(), last_of(1)) << "nobody knows how long a launch takes";
  launch(1);
  state.Waited(now += MeshState::kShortNs - 1);
  EXPECT_EQ(Launcher::Backlog(state, 0).get(), last_of(MeshState::kTogether));
  state.Waited(now += 1);
  EXPECT_EQ(Launcher::Backlog(state, 0).get(), last_of(MeshState::kTogether)) << "no launch was in between";
  launch(MeshState::kTogether);
  state.Waited(now += MeshState::kTogether * MeshState::kShortNs - 2);
  EXPECT_EQ(Launcher::Backlog(state, 0).get(), last_of(MeshState::kTogether));
  launch(MeshState::kTogether);
  state.Waited(now += MeshState::kTogether * MeshState::kShortNs);
  EXPECT_EQ(Launcher::Backlog(state, 0).get(), last_of(1)) << "they take too long for a caller to wait for several";
  state.events[state.launches % MeshState::kAhead]->Complete(absl::OkStatus());
  EXPECT_EQ(Launcher::Backlog(state, 0), nullptr);
}

}  // namespace
}  // namespace weft::lazy
