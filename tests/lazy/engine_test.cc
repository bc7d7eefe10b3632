// The engine's everyday behaviour: leaves, assignment, donation, scopes, modes, errors, threads.
#include <cmath>
#include <thread>

#include "tests/lazy/world.h"

namespace weft::lazy {
namespace {

TEST(Leaves, ComeBackAsTheyWentIn) {
  World w;
  EXPECT_THAT(w.Read(w.Vector({1, 2, 3})), ElementsAre(1, 2, 3));
  EXPECT_THAT(w.Read(w.Number(0.5)), ElementsAre(0.5));
  T wide = w.engine->ScalarInt(nullptr, DType::kI64, -5).value();
  int64_t value = 0;
  ASSERT_TRUE(w.engine->ToHost(wide.get(), std::as_writable_bytes(std::span(&value, 1))).ok());
  EXPECT_EQ(value, -5);
  EXPECT_EQ(w.Count(Counter::kLaunches), 0);
}

TEST(Leaves, OfTheWrongSizeTypeOrShapeAreRefused) {
  World w;
  const float data[3] = {};
  auto status = [&](DType dtype, Dims dims) {
    return std::string(w.engine->FromHost(nullptr, dtype, dims, std::as_bytes(std::span(data))).status().message());
  };
  EXPECT_EQ(status(DType::kF32, {2, 2}), "tensor from host memory: f32[2, 2] has 16 bytes, 12 were given");
  EXPECT_THAT(status(DType::kF32, {-1}), HasSubstr("negative or too large dimension"));
  EXPECT_THAT(status(DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}), HasSubstr("negative or too large"));
  EXPECT_THAT(status(static_cast<DType>(77), {1}), HasSubstr("unknown dtype"));
}

TEST(Adopted, MemoryIsReleasedOnceAndNeverDonated) {
  int released = 0;
  float data[2] = {1, 2};
  {
    World w;
    T p = w.engine->Adopt(nullptr, DType::kF32, Dims{2}, data, [&] { ++released; }).value();
    T next = w.Tmp("add", {p, p});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
    w.Sync();
    EXPECT_EQ(w.Count(Counter::kBuffersDonated), 0);
    EXPECT_THAT(w.Read(p), ElementsAre(2, 4));
  }
  EXPECT_EQ(released, 1);
  World w;
  EXPECT_FALSE(w.engine->Adopt(nullptr, DType::kF32, Dims{-2}, data, [&] { ++released; }).ok());
  EXPECT_EQ(released, 2);
}

TEST(Adopted, MemoryIsReleasedWithoutTheLockSoThatItsOwnerMayCallBack) {
  World w;
  float data[2] = {1, 2};
  std::vector<float> seen;
  T p = w.engine->Adopt(nullptr, DType::kF32, Dims{2}, data, [&] { seen = w.Read(w.Number(7)); }).value();
  T y = w.Op("add", {p, p});
  p = nullptr;
  EXPECT_THAT(seen, ElementsAre());
  w.Sync();  // the launch was the last that needed the memory: it dies under the engine's lock
  EXPECT_THAT(seen, ElementsAre(7));
  EXPECT_THAT(w.Read(y), ElementsAre(2, 4));
}

TEST(Assign, RebindsAndValuesRecordedBeforeKeepTheOldOne) {
  World w;
  T p = w.Vector({1, 2});
  T before = w.Op("add", {p, p});
  T next = w.Tmp("mul", {p, w.Number(10)});
  ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
  T after = w.Op("add", {p, p});
  w.Sync();
  EXPECT_THAT(w.Read(before), ElementsAre(2, 4));
  EXPECT_THAT(w.Read(p), ElementsAre(10, 20));
  EXPECT_THAT(w.Read(after), ElementsAre(20, 40));
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 1);
}

TEST(Assign, OfAnotherTypeIsRefused) {
  World w;
  const absl::Status status = w.engine->Assign(w.Vector({1, 2}).get(), w.Vector({1}).get());
  EXPECT_EQ(status.message(), "assign: target is f32[2], value f32[1]; dtype and shape must be the same");
}

TEST(Donation, IsRefusedWhileAnotherHandleShowsTheBuffer) {
  World w;
  T p = w.Vector({1, 2});
  T alias = w.engine->Alias(p.get()).value();
  T next = w.Tmp("add", {p, p});
  ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 0);
  EXPECT_THAT(w.Read(alias), ElementsAre(1, 2));
  EXPECT_THAT(w.Read(p), ElementsAre(2, 4));
}

TEST(Donation, IsRefusedWhileTheBufferIsExported) {
  World w;
  T p = w.Vector({1, 2});
  Ref<Buffer> exported = w.engine->ToBuffer(p.get()).value();
  for (int step = 0; step < 2; ++step) {
    T next = w.Tmp("add", {p, p});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
    w.Sync();
  }
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 1);  // the second step's
  EXPECT_EQ(static_cast<float*>(exported->host_data())[1], 2);
  exported->Unhold();
}

TEST(Donation, PatternIsTheSameEveryStepAlsoWhileLaunchesAreInFlight) {
  World w({}, 1, true);
  T p = w.Vector({1, 2});
  for (int step = 0; step < 50; ++step) {
    T next = w.Tmp("add", {p, w.Number(1)});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
    ASSERT_TRUE(w.engine->Sync().ok());
  }
  EXPECT_THAT(w.Read(p), ElementsAre(51, 52));
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 50);
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
}

TEST(Barrier, ComputesWhatIsLiveInCreationOrderOnce) {
  World w;
  T x = w.Vector({1, 2});
  T a = w.Op("add", {x, x});
  T b = w.Op("mul", {x, x});
  T same = w.engine->Alias(a.get()).value();
  w.Op("exp", {x});  // released at once: nobody's
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 2);
  EXPECT_EQ(w.Count(Counter::kCutBarrier), 1);
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kCutBarrier), 1);  // nothing was pending
  EXPECT_THAT(w.Read(same), ElementsAre(2, 4));
  EXPECT_THAT(w.Read(b), ElementsAre(1, 4));
}

// No barrier, only reads: the parameters' old values must go all the same.
TEST(Memory, OfALoopThatDoesNothingButReadItsLossIsBounded) {
  World w;
  T p = w.F32({1000}, std::vector<float>(1000, 1.0f));
  ASSERT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
  int64_t early = 0;
  for (int step = 0; step < 60; ++step) {
    T loss = w.Sum(w.Op("mul", {p, p}));
    T next = w.Op("sub", {p, w.Op("mul", {w.Grad(loss, {p})[0], w.Number(0.25)})});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
    next = nullptr;
    EXPECT_EQ(w.Read(loss)[0], 1000 * std::pow(0.25f, static_cast<float>(step)));
    if (step == 9) early = w.backend->live_bytes;
  }
  EXPECT_LE(w.backend->live_bytes, early);
}

TEST(Programs, AreKeptUpToANumberAndTheOneLeftAloneForLongestGoes) {
  Options options;
  options.max_programs = 3;
  options.replay = false;  // keeps some of its own
  World w(options, 1, /*asynchronous=*/true);
  auto run = [&](int n) {
    T y = w.Op("exp", {w.Vector(std::vector<float>(static_cast<size_t>(n), 0.0f))});
    EXPECT_TRUE(w.engine->Sync().ok());
    return y;  // perhaps still running when its program goes
  };
  std::vector<T> all;
  for (int n : {1, 2, 3, 1}) all.push_back(run(n));
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 3);
  for (int n : {4, 1, 3, 4}) all.push_back(run(n));
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 4);
  all.push_back(run(2));
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 5);
  for (const T& y : all) EXPECT_THAT(w.Read(y), ::testing::Each(1.0f));
}

TEST(Eval, ComputesTheseTensorsOnly) {
  World w;
  T x = w.Vector({1, 2});
  T a = w.Op("add", {x, x});
  T b = w.Op("exp", {a});
  auto event = w.engine->Eval(std::vector<Tensor*>{a.get()});
  ASSERT_TRUE(event.ok() && (*event)->Wait().ok());
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 1);
  EXPECT_EQ(w.Count(Counter::kKernelLaunches), 1);
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kKernelLaunches), 2);
}

// Parameters that later steps need are kept on the way; otherwise each step would compute all before it again.
TEST(Eval, OfTheLossOfEveryStepDoesEveryStepOnce) {
  World w;
  T p = w.F32({8}, std::vector<float>(8, 1.0f));
  ASSERT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
  int64_t early = 0, before = 0;
  for (int step = 0; step < 40; ++step) {
    T loss = w.Sum(w.Op("mul", {p, p})), other = w.Op("neg", {loss});
    T next = w.Op("sub", {p, w.Op("mul", {w.Grad(loss, {p})[0], w.Number(0.25)})});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
    next = nullptr;
    before = w.Count(Counter::kKernelLaunches);
    ASSERT_TRUE(w.engine->Eval(std::vector<Tensor*>{loss.get(), other.get(), loss.get()}).ok());
    if (step == 3) early = w.Count(Counter::kKernelLaunches) - before;
    EXPECT_EQ(w.Read(loss)[0], 8 * std::pow(0.25f, static_cast<float>(step)));
  }
  EXPECT_EQ(w.Count(Counter::kKernelLaunches) - before, early);
  EXPECT_LE(w.Count(Counter::kProgramsCompiled), 3);
}

TEST(Gradient, AfterABarrierSaysWhatToDo) {
  World w;
  T p = w.Vector({1, 2});
  ASSERT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
  T loss = w.Sum(w.Op("mul", {p, p}));
  w.Sync();
  Tensor* wrt[] = {p.get()};
  auto found = w.engine->Gradient(loss.get(), wrt);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(found.status().message(), HasSubstr("take gradients before weft_sync"));
  T x = w.Vector({1, 2});
  Tensor* not_marked[] = {x.get()};
  EXPECT_THAT(w.engine->Gradient(loss.get(), not_marked).status().message(),
              HasSubstr("xs[0] does not require a gradient; call weft_tensor_require_grad"));
}

TEST(Gradient, DoesNotFlowThroughAnAssignment) {
  for (int cut = 0; cut < 2; ++cut) {
    World w;
    T p = w.Vector({1, 2});
    ASSERT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
    T old = w.engine->Alias(p.get()).value();
    T next = w.Tmp("mul", {p, p});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
    T loss = w.Sum(w.Tmp("mul", {p, old}));
    if (cut == 1) w.Read(p);
    std::vector<T> g = w.Grad(loss, {p, old});
    EXPECT_THAT(w.Read(g[0]), ElementsAre(1, 2));
    EXPECT_THAT(w.Read(g[1]), ElementsAre(1, 4));
  }
}

TEST(RequiresGrad, IsForFloats) {
  World w;
  T i = w.engine->ScalarInt(nullptr, DType::kI32, 1).value();
  EXPECT_EQ(w.engine->SetRequiresGrad(i.get(), true).message(),
            "only float and complex tensors can require gradients, not i32[]");
}

TEST(Record, NamesTheMistakeTheShapesAndThePosition) {
  World w;
  T a = w.F32({2, 3}, std::vector<float>(6)), b = w.F32({4}, std::vector<float>(4));
  const ir::Location here{ir::InternFile("train.c"), 42};
  const absl::Status status = w.TryOp("add", {a, b}, {}, here).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("add(f32[2, 3], f32[4]): "));
  EXPECT_EQ(status.GetPayload(kPayloadPosition), absl::Cord("train.c:42"));
  // The engine is as before.
  EXPECT_THAT(w.Read(w.Op("add", {b, b})), ElementsAre(0, 0, 0, 0));
}

TEST(Record, RefusesTensorsOfTwoDevicesOrTwoContexts) {
  World w({}, 2);
  T a = w.F32({1}, {1}, 0), b = w.F32({1}, {1}, 1);
  EXPECT_THAT(w.TryOp("add", {a, b}).status().message(), HasSubstr("operands are on fake:0 and fake:1"));
  World other;
  EXPECT_THAT(w.TryOp("add", {a, other.F32({1}, {1})}).status().message(), HasSubstr("belongs to another context"));
}

TEST(Record, OfAListIsAllOrNothingOnTheDeviceThatItNames) {
  World w({}, 2);
  const ir::OpDef* iota = ops::FindOp("iota");
  Device* second = w.engine->devices()[1];
  const auto found = [] { return absl::OkStatus(); };
  const auto counting = [&](Device* device) {
    Engine::Call call;
    call.op = iota;
    call.attrs = {ir::Ints{3}, int64_t{0}, DType::kF32};
    call.device = device;
    return call;
  };
  // 0, 1, 2 there, doubled there.
  Tensor* operands[] = {nullptr, nullptr};
  const Engine::Call::Earlier both[] = {{0, 0, 0}, {1, 0, 0}};
  Engine::Call calls[] = {counting(second), {}};
  calls[1].op = ops::FindOp("add");
  calls[1].operands = operands;
  calls[1].earlier = both;
  size_t failed = 99;
  ASSERT_TRUE(w.engine->RecordMany(calls, found, {}, &failed).ok());
  EXPECT_EQ(calls[0].results[0]->device(), second);
  EXPECT_EQ(calls[1].results[0]->device(), second);
  EXPECT_EQ(w.Read(calls[1].results[0]), (std::vector<float>{0, 2, 4}));
  // One that is not there with it.
  const T here = w.Vector({1, 2, 3});
  Tensor* mixed[] = {nullptr, here.get()};
  Engine::Call bad[] = {counting(second), {}};
  bad[1].op = ops::FindOp("add");
  bad[1].operands = mixed;
  bad[1].earlier = {both, 1};
  const absl::Status status = w.engine->RecordMany(bad, found, {}, &failed);
  EXPECT_EQ(failed, 1u);
  EXPECT_EQ(status.message(), "add: operands are on fake:1 and fake:0; copy one of them to the other device (weft_tensor_copy_to)");
  EXPECT_TRUE(bad[0].results.empty());
  // What is wrong with the device of one operation's gradient is said as well.
  Tensor* const inputs[] = {here.get()};
  Tensor* const cotangents[] = {calls[1].results[0].get()};
  constexpr bool kWanted[] = {true};
  EXPECT_EQ(w.engine->OpGradient({*ops::FindOp("exp"), inputs, {}, cotangents, kWanted}, {}).status().message(),
            "the gradient of exp: cotangents[0] is on fake:1, others on fake:0; see weft_tensor_copy_to");
}

TEST(Scalars, LikeATensorAreWhereItIsAndPartOfProgramsOrNot) {
  World w({}, 2);
  const T there = w.F32({2}, {3, 4}, 1);
  HostTensor two(DType::kF32, {});
  two.SetDouble(0, 2);
  for (const bool constant : {true, false}) {
    const T number = w.engine->ScalarLike(*there, two, constant).value();
    EXPECT_EQ(number->device(), there->device());
    const std::string text = w.engine->GraphText(std::vector<Tensor*>{w.Op("mul", {there, number}).get()}).value();
    EXPECT_EQ(text.find("constant") != std::string::npos, constant) << text;
  }
}

TEST(Close, RefusesNewWorkAndLetsTensorsGo) {
  World w;
  T a = w.Vector({1});
  ASSERT_TRUE(w.engine->Close().ok());
  EXPECT_EQ(w.TryOp("add", {a, a}).status().message(), "the context has been closed");
  EXPECT_THAT(w.Read(a), ElementsAre(1));
}

TEST(Eager, ComputesEachOperationAndForgetsThePast) {
  Options options;
  options.mode = Mode::kEager;
  World w(options);
  T x = w.Vector({1, 2});
  for (int i = 0; i < 100; ++i) x = w.Op("add", {x, x});
  EXPECT_EQ(w.Count(Counter::kCutEager), 100);
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
  EXPECT_LE(w.backend->peak_bytes, 100);
}

TEST(Debug, NamesTheOperationThatMadeTheFirstNaN) {
  Options options;
  options.mode = Mode::kDebug;
  World w(options);
  T x = w.Vector({1, -1});
  const absl::Status status = w.TryOp("log", {x}, {}, {ir::InternFile("net.c"), 7}).status();
  EXPECT_EQ(status.message(), "log(f32[2]): element 1 of the result is NaN, and no operand holds one (debug mode); operand 0: -1 to 1; "
            "result: 1 of 2 elements NaN, finite ones 0 to 0");
  EXPECT_EQ(status.GetPayload(kPayloadPosition), absl::Cord("net.c:7"));
  T nan = w.Vector({NAN, 1});
  EXPECT_TRUE(w.TryOp("log", {nan}).ok());
}

TEST(Debug, LooksAtBothPartsOfComplexNumbers) {
  Options options;
  options.mode = Mode::kDebug;
  World w(options);
  T one = w.Vector({1, 1, 1}), inf = w.Vector({0, INFINITY, 0});
  T z = w.Op("complex", {one, inf});
  const absl::Status apart = w.TryOp("sub", {z, z}).status();  // inf - inf, in the imaginary part
  EXPECT_EQ(apart.message(), "sub(c64[3], c64[3]): element 1 of the result is NaN, and no operand holds one (debug mode); operand 0: 0 to 1; "
            "operand 1: 0 to 1; result: 1 of 3 elements NaN, finite ones 0 to 0");
  T nan = w.Op("complex", {one, w.Vector({NAN, 0, 0})});
  EXPECT_TRUE(w.TryOp("sub", {nan, nan}).ok());
}

TEST(Release, FromManyThreadsWhileRecordingIsSafe) {
  World w({}, 1, true);
  T x = w.Vector({1, 2});
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&w, x] {
      for (int i = 0; i < 200; ++i) {
        T y = w.Op("add", {x, x});
        T z = w.Op("mul", {y, x});
        if (i % 50 == 0) {
          EXPECT_THAT(w.Read(z), ElementsAre(2, 8));
        }
        if (i % 70 == 0) {
          EXPECT_TRUE(w.engine->Sync().ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(w.Count(Counter::kOperationsRecorded), 1600);
}

TEST(Engine, OutlivesItsOwnerWhileTensorsLive) {
  T survivor;
  {
    World w;
    survivor = w.Op("add", {w.Vector({1}), w.Vector({2})});
  }
  float value = 0;
  EXPECT_TRUE(survivor->engine().ToHost(survivor.get(), std::as_writable_bytes(std::span(&value, 1))).ok());
  EXPECT_EQ(value, 3);
}

TEST(Log, CarriesWarningsOutsideTheLock) {
  World w;
  w.engine->services().Log(LogLevel::kWarning, "something odd");
  w.Number(1);
  EXPECT_THAT(w.log, ElementsAre("something odd"));
  EXPECT_THAT(w.engine->services().LastWarnings(), ElementsAre("something odd"));
}

TEST(Report, ListsCountersAndMemory) {
  World w;
  T x = w.Vector({1, 2});
  w.Read(w.Op("add", {x, x}));
  EXPECT_THAT(ReportOf(w.engine->TakeSnapshot()), HasSubstr("programs_compiled: 1\n"));
  EXPECT_THAT(ReportOf(w.engine->TakeSnapshot()), HasSubstr("memory fake:0: "));
  EXPECT_THAT(JsonOf(w.engine->TakeSnapshot()), HasSubstr("\"cut_host_read\": 1"));
}

}  // namespace
}  // namespace weft::lazy
