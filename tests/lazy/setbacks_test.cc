// Cuts that cannot be had: too little memory, and programs that the compiler refuses. No operation fails for them, nothing
// is lost, and whoever asks for the value at fault is told its name.
#include "src/backends/cpu/cpu_backend.h"
#include "tests/lazy/world.h"
#include "tests/support/cpu_under_test.h"

namespace weft::lazy {
namespace {

constexpr int64_t kTera = int64_t{1} << 40;

T Full(World& w, Dims dims, double value) {
  return w.Op("full", {}, {ir::Ints(dims.begin(), dims.end()), value});
}

Options Small(int64_t pending_nodes, int64_t pending_bytes) {
  Options options;
  options.max_pending_nodes = pending_nodes;
  options.max_pending_bytes = pending_bytes;
  options.large_cut_bytes = 0;
  return options;
}

std::string SyncError(World& w) {
  const auto event = w.engine->Sync();
  return event.ok() ? "" : std::string(event.status().message());
}

// On the CPU with the machine's own memory, which says so before overcommit could grant it.
TEST(Memory, OfAHandleThatNoMachineHoldsIsNobodyElsesTrouble) {
  for (Mode mode : {Mode::kLazy, Mode::kEager}) {
    Options options;
    options.mode = mode;
    World w(options, test::NewCpuBackend({.threads = 1}).value());
    T x = w.Vector({1, 2}), y = w.Vector({3, 4});
    const auto huge = w.TryOp("full", {}, {ir::Ints{kTera}, 1.0}, {ir::InternFile("net.c"), 3});
    ASSERT_EQ(huge.ok(), mode == Mode::kLazy) << huge.status();
    T sum;
    for (int i = 0; i < 10; ++i) sum = w.Op("add", {x, y});
    const auto event = mode == Mode::kLazy ? w.engine->Sync().status() : huge.status();
    EXPECT_EQ(event.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(event.message(), HasSubstr("no memory for f32[1099511627776] (broadcast_in_dim, net.c:3) of 4398046511104 bytes: "));
    EXPECT_THAT(event.message(), HasSubstr(" are free on cpu:0; release the tensor"));
    EXPECT_EQ(event.GetPayload(kPayloadPosition), absl::Cord("net.c:3"));
    EXPECT_THAT(w.Read(sum), ElementsAre(4, 6));
    if (mode == Mode::kEager) continue;
    T one = w.Op("max", {(*huge)[0]});  // fused: no terabyte is needed for its type
    EXPECT_EQ(one->type().count(), 1);
    one = nullptr;
    EXPECT_FALSE(w.engine->Sync().ok());
  }
}

TEST(Memory, FreedByReleasingTheHandleIsAllThatABarrierWaitsFor) {
  World w(Options(), test::NewCpuBackend({.threads = 1}).value());
  T x = w.Vector({1, 2});
  T sum = w.Op("add", {x, x});
  {
    T huge = Full(w, {kTera}, 1);
    EXPECT_FALSE(w.engine->Sync().ok());
  }
  w.Sync();
  EXPECT_THAT(w.Read(sum), ElementsAre(2, 4));
}

TEST(Memory, ThatRunningWorkGivesBackIsWaitedFor) {
  World w(Small(0, 0), 1, /*asynchronous=*/true);
  T x = w.Vector({1, 2});
  w.backend->room = 4;
  w.backend->Post([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    w.backend->room = 1000;
  });
  T y = w.Op("add", {x, x});
  ASSERT_TRUE(w.engine->Eval(std::vector<Tensor*>{w.Op("neg", {w.Number(1)}).get()}).ok());  // four bytes, behind that
  w.Sync();
  EXPECT_THAT(w.Read(y), ElementsAre(2, 4));
}

// a[n, 1] - b[1, n] is 40 kB of 800 bytes of leaves; its least square needs none of that.
TEST(AutomaticCut, LeavesPendingWhatIsMuchLargerThanItsLeaves) {
  World w(Small(20'000, 30'000));
  w.backend->room = 20'000;
  std::vector<float> values(100);
  std::iota(values.begin(), values.end(), 0.0f);
  T a = w.F32({100, 1}, values), b = w.F32({1, 100}, values);
  T h = w.Op("exp", {a});
  T difference = w.Op("sub", {h, b});
  T square = w.Op("mul", {difference, difference});
  T least = w.Op("min", {square});
  for (int i = 0; i < 10; ++i) w.Op("neg", {a});
  EXPECT_EQ(w.Count(Counter::kCutBytes), 2);
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 2);     // h, which difference is made of, and least
  EXPECT_EQ(w.Count(Counter::kCutsPostponed), 1);  // when square was all
  EXPECT_EQ(w.Read(least)[0], 0);
  EXPECT_LE(w.backend->peak_bytes, 20'000);
  w.backend->room = 200'000;
  EXPECT_EQ(w.Read(difference)[1], 1 - 1);
}

TEST(Memory, OfWhatSomebodyHoldsIsNotCountedAsTakenOver) {
  World w(Small(0, 0));
  T x = w.F32({1000}, std::vector<float>(1000, 1));
  w.Sync();
  w.backend->room = 1'000;
  const auto twice = [&] {
    T sum = w.Tmp("add", {x, x});
    EXPECT_TRUE(w.engine->Assign(x.get(), sum.get()).ok());
    return SyncError(w);
  };
  EXPECT_EQ(twice(), "") << "in place";
  T alias = w.engine->Alias(x.get()).value();
  EXPECT_THAT(twice(), HasSubstr("no memory for f32[1000] (add) of 4000 bytes: 4000 bytes are needed at once, 1000 are free on fake:0"));
  w.backend->room = 4'000;
  EXPECT_EQ(w.Read(x)[999], 4) << "beside the other";
  EXPECT_EQ(w.Read(alias)[999], 2);
}

TEST(Read, LeavesPendingWhatNobodyAskedForAndMemoryDoesNotHold) {
  World w(Small(0, 0));
  w.backend->room = 20'000;
  T a = w.F32({100, 1}, std::vector<float>(100, 3)), b = w.F32({1, 100}, std::vector<float>(100, 1));
  T difference = w.Op("sub", {w.Op("exp", {a}), b});
  T square = w.Op("mul", {difference, difference});
  T least = w.Op("min", {w.Op("add", {square, difference})});
  w.Read(least);
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 2);  // least, and the exponentials that the others will want
  EXPECT_LE(w.backend->peak_bytes, 2'000);
  w.backend->room = 100'000;
  w.Read(w.Op("max", {square}));  // now there is room for what has handles: square and difference
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 5);
}

TEST(AutomaticCut, ThatCannotBeStoredFailsNoOperationAndIsTriedAgainAtTwiceTheNodes) {
  World w(Small(10, 0));
  w.backend->room = 1'000;
  T x = w.F32({1000}, std::vector<float>(1000, 1)), one = w.Number(1);
  for (int i = 0; i < 1000; ++i) x = w.Op("add", {x, one});
  EXPECT_EQ(w.Count(Counter::kCuts), 0);
  EXPECT_THAT(w.Count(Counter::kCutsPostponed), ::testing::AllOf(::testing::Ge(6), ::testing::Le(8)));
  ASSERT_EQ(w.log.size(), 1u);
  EXPECT_THAT(w.log[0], HasSubstr("automatic cut of the pending graph on fake:0: put off, tried again whenever the graph has doubled: "
                                  "no memory for f32[1000] (add) of 4000 bytes: 4000 bytes are needed at once, 1000 are free on fake:0"));
  w.backend->room = 1 << 20;
  for (int i = 0; i < 2000; ++i) x = w.Op("add", {x, one});
  EXPECT_GE(w.Count(Counter::kCutNodes), 10);
  EXPECT_EQ(w.Read(x)[999], 3001);
  // The next time it says so again.
  w.backend->room = 1'000;
  for (int i = 0; i < 100; ++i) x = w.Op("add", {x, one});
  EXPECT_EQ(w.log.size(), 2u);
}

TEST(AutomaticCut, ThatCannotBeCompiledOrLaunchedFailsNoOperation) {
  for (bool at_compile : {true, false}) {
    World w(Small(10, 0));
    T x = w.Vector({1, 2}), one = w.Number(1);
    (at_compile ? w.backend->fail_compiles : w.backend->fail_executes) = 1;
    for (int i = 0; i < 100; ++i) x = w.Op("add", {x, one});
    EXPECT_EQ(w.Count(Counter::kCutsPostponed), 1);
    EXPECT_GE(w.Count(Counter::kCutNodes), 3);
    EXPECT_EQ(w.log.size(), 1u);
    EXPECT_THAT(w.Read(x), ElementsAre(101, 102));
  }
}

TEST(AutomaticCut, OfARepeatingLoopIsTriedAgain) {
  Options options;
  options.repetition_nodes = 30;
  World w(options);
  T x = w.Vector({1, 2}), one = w.Number(1);
  w.backend->fail_executes = 1;
  for (int i = 0; i < 300; ++i) x = w.Tmp("add", {w.Tmp("mul", {x, one}), one});
  EXPECT_EQ(w.Count(Counter::kCutsPostponed), 1);
  EXPECT_GE(w.Count(Counter::kCutRepetition), 2);
  EXPECT_THAT(w.Read(x), ElementsAre(301, 302));
}

TEST(SetAside, IsWhatTheCompilerRefusesWhileTheRestIsComputed) {
  World w;
  w.backend->refuses = "tanh";
  T x = w.Vector({1, 2});
  std::vector<T> good;
  for (int i = 0; i < 5; ++i) good.push_back(w.Op("add", {x, w.Number(i)}));
  auto bad = w.TryOp("tanh", {x}, {}, {ir::InternFile("net.c"), 9});
  for (int i = 0; i < 6; ++i) good.push_back(w.Op("mul", {x, w.Number(i)}));
  EXPECT_EQ(SyncError(w), "fake: no code for tanh\nNo program can be made for f32[2] (tanh, net.c:9): later barriers leave it out "
                          "and compute the rest");
  EXPECT_EQ(w.Count(Counter::kCuts), 0);  // as after every failed step
  EXPECT_EQ(w.Count(Counter::kTensorsSetAside), 1);
  for (int step = 0; step < 3; ++step) {
    good.push_back(w.Op("sub", {good.back(), x}));
    w.Sync();
    EXPECT_EQ(w.Count(Counter::kCutBarrier), step + 1);
  }
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 14);
  EXPECT_THAT(w.Read(good[4]), ElementsAre(5, 6));
  // By name it is refused each time, with what depends on it, and goes through once the compiler is mended.
  T worse = w.Op("neg", {(*bad)[0]});
  std::vector<float> values(2);
  for (const T& tensor : {(*bad)[0], worse}) {
    EXPECT_EQ(w.engine->ToHost(tensor.get(), std::as_writable_bytes(std::span(values))).message(), "fake: no code for tanh");
  }
  w.backend->refuses = "";
  EXPECT_FLOAT_EQ(w.Read(worse)[0], -std::tanh(1.0f));
  w.Sync();
  EXPECT_FLOAT_EQ(w.Read((*bad)[0])[1], std::tanh(2.0f));
}

TEST(SetAside, KeepsWhatItIsMadeOfFromDonation) {
  World w;
  w.backend->refuses = "tanh";
  T p = w.Vector({1, 2});
  T bad = w.Op("tanh", {w.Tmp("mul", {p, p})});
  auto update = [&] {
    T next = w.Tmp("add", {p, w.Number(1)});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
  };
  update();
  EXPECT_NE(SyncError(w), "");
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 0);
  update();
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 1);
  w.backend->refuses = "";
  EXPECT_FLOAT_EQ(w.Read(bad)[1], std::tanh(4.0f));
  EXPECT_THAT(w.Read(p), ElementsAre(3, 4));
}

TEST(SetAside, IsNoneWhereTheFaultWasTheMoments) {
  for (int outputs : {1, 3}) {
    World w;
    T x = w.Vector({1, 2});
    std::vector<T> all;
    for (int i = 0; i < outputs; ++i) all.push_back(w.Op("add", {x, w.Number(i)}));
    w.backend->fail_compiles = 1;
    EXPECT_EQ(SyncError(w), "fake: the compiler failed");
    EXPECT_EQ(w.Count(Counter::kTensorsSetAside), 0);
    w.Sync();
    EXPECT_EQ(w.Count(Counter::kCutOutputs), outputs);
  }
}

TEST(SetAside, EndsWhereAnotherValueIsAssigned) {
  World w;
  w.backend->refuses = "tanh";
  T x = w.Vector({1, 2});
  T y = w.Op("tanh", {x});
  EXPECT_NE(SyncError(w), "");
  ASSERT_TRUE(w.engine->Assign(y.get(), w.Op("add", {x, x}).get()).ok());
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 1);
  EXPECT_THAT(w.Read(y), ElementsAre(2, 4));
}

}  // namespace
}  // namespace weft::lazy
