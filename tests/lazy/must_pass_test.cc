// What the engine must never get wrong, each with a counter or a value that would show it.
#include <sys/resource.h>

#include <thread>

#include "src/compiler/canonical.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/lazy/optimizer.h"
#include "tests/lazy/world.h"
#include "tests/support/small_stack.h"

namespace weft::lazy {
namespace {

constexpr double kRate[] = {1e-3};  // of every step

// Two programs that differ only in which leaf stands where: PyTorch/XLA's cache confused them.
void RunSwappedOperands(int hash_bits) {
  Options options;
  options.hash_bits = hash_bits;
  World w(options);
  T a = w.Vector({1, 2}), b = w.Vector({3, 4}), c = w.Vector({5, 6});
  for (int step = 0; step < 3; ++step) {
    T x = w.Op("add", {w.Op("mul", {a, b}), c});
    T y = w.Op("add", {w.Op("mul", {a, c}), b});
    EXPECT_THAT(w.Read(x), ElementsAre(8, 14));
    EXPECT_THAT(w.Read(y), ElementsAre(8, 16));
  }
  // Both in one program, and both orders alone.
  T x = w.Op("add", {w.Tmp("mul", {a, b}), c});
  T y = w.Op("add", {w.Tmp("mul", {a, c}), b});
  w.Sync();
  EXPECT_THAT(w.Read(x), ElementsAre(8, 14));
  EXPECT_THAT(w.Read(y), ElementsAre(8, 16));
  T z = w.Op("sub", {w.Tmp("mul", {a, b}), c});
  EXPECT_THAT(w.Read(z), ElementsAre(-2, 2));
}

TEST(CacheKey, KeepsProgramsApartThatDifferInLeavesOnly) { RunSwappedOperands(128); }

TEST(CacheKey, TheStoredFormDecidesWhenTheHashIsFourBits) { RunSwappedOperands(4); }

TEST(CacheKey, FourBitsOfHashCollideAndEveryProgramIsStillItsOwn) {
  Options options;
  options.hash_bits = 4;
  World w(options);
  T x = w.Vector({1, 2});
  // 40 different programs on 16 keys, twice.
  for (int round = 0; round < 2; ++round) {
    for (int length = 1; length <= 40; ++length) {
      T y = x;
      for (int i = 0; i < length; ++i) y = w.Tmp("add", {y, x});
      EXPECT_THAT(w.Read(y), ElementsAre(1.0f + static_cast<float>(length), 2.0f * (1 + static_cast<float>(length))));
    }
  }
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 40);
  // Once each at most, and only for who is not the first of a key.
  EXPECT_GE(w.Count(Counter::kMemoryCacheCollisions), 24);
  EXPECT_LE(w.Count(Counter::kMemoryCacheCollisions), 39);
}

TEST(Scalars, ALearningRateScheduleThroughZeroOneAndTheMomentumCompilesOnce) {
  World w;
  T p = w.Vector({1, 2, 3});
  ASSERT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
  OptimizerOptions options;
  options.momentum = 0.9;
  Tensor* parameters[] = {p.get()};
  auto sgd = Optimizer::Create(*w.engine, parameters, {&options, 1}).value();
  for (double rate : {0.5, 0.0, 1.0, 0.9, 0.25, 0.0, 0.9}) {
    T loss = w.Sum(w.Tmp("mul", {p, p}));
    w.engine->AdoptByScope(loss.get());
    std::vector<T> g = w.Grad(loss, {p});
    w.engine->AdoptByScope(g[0].get());
    Tensor* gradients[] = {g[0].get()};
    ASSERT_TRUE(sgd->Step(gradients, {&rate, 1}).ok());
    w.Sync();
  }
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
  EXPECT_EQ(w.Count(Counter::kMemoryCacheHits), 6);
}

TEST(Scalars, EqualValuesAreNeverMergedAndZeroAndOneAreNeverFolded) {
  World w;
  T x = w.Vector({2, 3});
  for (auto [a, b] : {std::pair(5.0, 7.0), std::pair(7.0, 7.0), std::pair(0.0, 1.0), std::pair(1.0, 1.0)}) {
    T y = w.Op("add", {w.Tmp("mul", {x, w.Number(a)}), w.Number(b)});
    EXPECT_THAT(w.Read(y), ElementsAre(2 * a + b, 3 * a + b));
  }
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
}

TEST(Scalars, AndSeedsOfALaunchTravelInOneBlockOfWords) {
  World w;
  T x = w.Vector({1, 2});
  T wide = w.engine->Scalar(nullptr, DType::kF64, 0.5).value();
  T y = w.Tmp("mul", {w.Tmp("dropout", {x}), w.Number(0.25)});
  y = w.Op("add", {y, w.Op("convert", {wide}, {DType::kF32})});
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kLaunches), 1);
  EXPECT_EQ(w.backend->last_buffers, 1u);         // x
  EXPECT_EQ(w.backend->last_words.size(), 9u);    // f32, f64 and a random state u64[3]
  EXPECT_EQ(w.Count(Counter::kBytesToDevice), 8);  // x
}

TEST(Read, InsideAStepComputesNothingTwice) {
  auto step = [](bool print) {
    World w;
    T x = w.Vector({1, 2, 3});
    T p = w.Vector({0.5, 0.25, 2});
    EXPECT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
    T h = w.Tmp("exp", {w.Tmp("mul", {x, p})});
    T loss = w.Sum(h);
    if (print) w.Read(loss);
    T g = w.Grad(loss, {p})[0];
    w.engine->AdoptByScope(g.get());
    if (print) w.Read(loss);
    T updated = w.Tmp("sub", {p, g});
    EXPECT_TRUE(w.engine->Assign(p.get(), updated.get()).ok());
    w.Sync();
    if (print) w.Read(loss);
    std::vector<float> result = w.Read(p);
    result.push_back(static_cast<float>(w.Count(Counter::kKernelLaunches)));
    return result;
  };
  EXPECT_EQ(step(true), step(false));
}

TEST(Read, OfAValueUsedByPendingWorkIsSharedWithIt) {
  World w;
  T x = w.Vector({1, 2});
  T h = w.Tmp("exp", {x});
  T y = w.Op("add", {h, h});
  T z = w.Op("mul", {h, x});
  w.Read(y);  // computes h, which z wants
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kKernelLaunches), 3);  // exp, add, mul
}

TEST(Cuts, DropoutInALoopWithoutBarrierCompilesAtMostTwice) {
  World w;
  T x = w.Vector(std::vector<float>(16, 1.0f));
  for (int step = 0; step < 1000; ++step) {
    T dropped = w.Tmp("dropout", {x});
    ASSERT_NE(dropped, nullptr);
    x = w.Tmp("add", {dropped, w.Tmp("mul", {x, w.Number(0.5)})});
  }
  w.Read(x);
  EXPECT_LE(w.Count(Counter::kProgramsCompiled), 2) << ReportOf(w.engine->TakeSnapshot());
  EXPECT_GE(w.Count(Counter::kCutRepetition), 1);
}

TEST(Cuts, ATrainingLoopWithoutBarrierCompilesItsBodyOnceAndForgetsItsPast) {
  Options options;
  options.repetition_nodes = 200;
  World w(options);
  T p = w.Vector({1, 2, 3, 4});
  ASSERT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
  OptimizerOptions adam;
  adam.kind = OptimizerOptions::Kind::kAdam;
  Tensor* parameters[] = {p.get()};
  auto optimizer = Optimizer::Create(*w.engine, parameters, {&adam, 1}).value();
  int64_t early = 0;
  for (int step = 0; step < 300; ++step) {
    T loss = w.Sum(w.Tmp("mul", {p, p}));
    std::vector<T> g = w.Grad(loss, {p});
    Tensor* gradients[] = {g[0].get()};
    ASSERT_TRUE(optimizer->Step(gradients, kRate).ok());
    if (step == 60) early = w.backend->peak_bytes;
  }
  w.Read(p);
  EXPECT_LE(w.Count(Counter::kProgramsCompiled), 3) << ReportOf(w.engine->TakeSnapshot());
  EXPECT_LE(w.backend->peak_bytes, early);
}

TEST(Barrier, TemporariesOfAScopeAreNeverOutputs) {
  World w;
  T x = w.Vector({1, 2});
  for (int step = 0; step < 3; ++step) {
    T a = w.Tmp("mul", {x, x});
    T b = w.Tmp("add", {a, x});
    T c = w.Op("sub", {b, a});
    T kept = w.Tmp("exp", {b});
    w.engine->Keep(kept.get());
    w.Sync();
    EXPECT_THAT(w.Read(c), ElementsAre(1, 2));
    std::vector<float> values(2);
    const absl::Status status = w.engine->ToHost(a.get(), std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("keep it before weft_sync"));
    EXPECT_EQ(w.TryOp("add", {a, x}).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(w.Count(Counter::kCutOutputs), 6);  // c and kept, three times
  EXPECT_EQ(w.Count(Counter::kTemporariesExpired), 6);
}

// Gradients by mode and by where the graph is cut. `cut`: 0 none, 1 read in the forward pass, 2 eval, 3 automatic cuts
// everywhere, 4 read between two gradients.
std::vector<float> GradientsOf(Mode mode, int cut) {
  Options options;
  options.mode = mode;
  if (cut == 3) options.max_pending_nodes = 1;
  World w(options);
  T x = w.F32({2, 2}, {1, 2, 3, 4});
  T p = w.F32({2, 2}, {0.5, -1, 0.25, 2});
  T q = w.F32({2}, {1, 3});
  EXPECT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
  EXPECT_TRUE(w.engine->SetRequiresGrad(q.get(), true).ok());
  T h = w.Tmp("tanh", {w.Tmp("mul", {x, p})});
  if (cut == 1) w.Read(h);
  T s = w.Tmp("softmax", {w.Tmp("add", {h, q})});
  if (cut == 2) {
    EXPECT_TRUE(w.engine->Eval(std::vector<Tensor*>{s.get()}).ok());
  }
  T loss = w.Sum(w.Tmp("mul", {s, x}));
  if (cut == 1) w.Read(loss);
  std::vector<T> g = w.Grad(loss, {p, q});
  if (cut == 4) w.Read(g[0]);
  std::vector<T> second = w.Grad(w.Sum(g[0]), {q});
  std::vector<float> all = w.Read(g[0]);
  for (float v : w.Read(g[1])) all.push_back(v);
  for (float v : w.Read(second[0])) all.push_back(v);
  return all;
}

TEST(Cuts, NeverChangeGradientsInAnyMode) {
  const std::vector<float> expected = GradientsOf(Mode::kLazy, 0);
  EXPECT_EQ(expected.size(), 8u);
  for (Mode mode : {Mode::kLazy, Mode::kEager, Mode::kDebug}) {
    for (int cut = 0; cut <= 4; ++cut) {
      EXPECT_EQ(GradientsOf(mode, cut), expected) << "mode " << static_cast<int>(mode) << ", cut " << cut;
    }
  }
}

// Random numbers by mode and by where the graph is cut; the draws depend on each other, and one is released unused.
std::vector<float> DrawsOf(Mode mode, int cut) {
  Options options;
  options.mode = mode;
  options.seed = 7;
  if (cut == 3) options.max_pending_nodes = 1;
  World w(options);
  T x = w.Vector(std::vector<float>(64, 1.0f));
  T a = w.Op("dropout", {x});
  if (cut == 1) w.Read(a);
  w.Op("dropout", {a});
  if (cut == 2) w.Sync();
  T b = w.Op("dropout", {w.Op("add", {a, x})});
  std::vector<float> all = w.Read(cut == 1 ? b : a);
  std::vector<float> rest = w.Read(cut == 1 ? a : b);
  if (cut == 1) std::swap(all, rest);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

TEST(Cuts, NeverChangeRandomNumbersInAnyMode) {
  const std::vector<float> expected = DrawsOf(Mode::kLazy, 0);
  EXPECT_NE(std::vector<float>(expected.begin(), expected.begin() + 64),
            std::vector<float>(expected.begin() + 64, expected.end()));
  for (Mode mode : {Mode::kLazy, Mode::kEager, Mode::kDebug}) {
    for (int cut = 0; cut <= 3; ++cut) {
      EXPECT_EQ(DrawsOf(mode, cut), expected) << "mode " << static_cast<int>(mode) << ", cut " << cut;
    }
  }
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_TESTS_UNDER_TSAN 1
#endif
#endif
// One thread, over a minute and 6 GiB under ThreadSanitizer, which has nothing to see here.
#ifdef WEFT_TESTS_UNDER_TSAN
constexpr int kMillion = 50'000;
#else
constexpr int kMillion = 1'000'000;
#endif

TEST(MillionOperations, AreRecordedFingerprintedVerifiedDifferentiatedPrintedAndDestroyedOnASmallStack) {
  test::OnSmallStack([] {
    Options options;
    options.max_pending_nodes = options.max_pending_bytes = options.repetition_nodes = 0;
    World w(options);
    T one = w.Number(1);
    T x = w.Number(3);
    ASSERT_TRUE(w.engine->SetRequiresGrad(x.get(), true).ok());
    T y = x;
    for (int i = 0; i < kMillion; ++i) y = w.Op("mul", {y, one});
    EXPECT_EQ(w.Count(Counter::kCuts), 0);
    const int64_t before = w.Count(Counter::kNodesRecorded);
    T g = w.Grad(y, {x})[0];
    EXPECT_GE(w.Count(Counter::kNodesRecorded) - before, kMillion);
    Tensor* tensors[] = {g.get()};
    absl::StatusOr<std::string> text = w.engine->GraphText(tensors);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_GT(text->size(), static_cast<size_t>(kMillion) * 20);
    absl::StatusOr<ir::Module> module = ir::Parse(*text, ops::FindOp);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_TRUE(ir::Verify(*module).ok());
    std::string canonical;
    compiler::AppendCanonical(module->main(), &canonical);
    EXPECT_GT(canonical.size(), static_cast<size_t>(kMillion) * 8);
  });
}

TEST(MillionOperations, WithAutomaticCutsHaveTheRightValueInBoundedMemory) {
  World w;
  T one = w.Number(1);
  T x = w.Number(0);
  rusage before{};
  for (int i = 0; i < kMillion; ++i) {
    x = w.Tmp("add", {x, one});
    if (i == kMillion / 20) getrusage(RUSAGE_SELF, &before);
  }
  EXPECT_EQ(w.Read(x)[0], kMillion);
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LE(after.ru_maxrss - before.ru_maxrss, 16 << 10) << "KiB more than after a twentieth of the operations";
  EXPECT_LE(w.Count(Counter::kProgramsCompiled), 2);
  EXPECT_GE(w.Count(Counter::kCuts), kMillion / 10'000);
}

TEST(Failure, OfCompilerOrLaunchLeavesEverythingReadableAndTheStepRetryable) {
  for (bool at_compile : {true, false}) {
    World w;
    T p = w.Vector({1, 2});
    T step = w.Tmp("mul", {p, w.Number(3)});
    T other = w.Op("add", {p, p});
    ASSERT_TRUE(w.engine->Assign(p.get(), step.get()).ok());
    (at_compile ? w.backend->fail_compiles : w.backend->fail_executes) = 1;
    EXPECT_FALSE(w.engine->Sync().ok());
    EXPECT_EQ(w.Count(Counter::kCuts), 0);
    EXPECT_THAT(w.Read(other), ElementsAre(2, 4));
    EXPECT_THAT(w.Read(step), ElementsAre(3, 6));
    w.Sync();
    EXPECT_THAT(w.Read(p), ElementsAre(3, 6));
  }
}

TEST(Failure, OfAnOperationOnRandomNumbersDrawsTheSameWhenRepeated) {
  Options options;
  options.mode = Mode::kEager;
  auto draw = [&](bool fail) {
    World w(options);
    T x = w.Vector(std::vector<float>(64, 1.0f));
    if (fail) {
      w.backend->fail_compiles = 1;
      EXPECT_FALSE(w.TryOp("dropout", {x}).ok());
    }
    return w.Read(w.Op("dropout", {x}));
  };
  EXPECT_EQ(draw(true), draw(false));
}

TEST(Failure, OfARunningKernelReachesWhatDependsOnItWithTheFirstCauseAndNothingElse) {
  World w({}, 1, true);
  T x = w.Vector({1, 2});
  T bad = w.Op("add", {x, x});
  w.backend->fail_runs = 2;  // as it is made again for the second, too
  EXPECT_TRUE(w.engine->Eval(std::vector<Tensor*>{bad.get()}).ok());
  T worse = w.Op("mul", {bad, x});
  T fine = w.Op("mul", {x, x});
  std::vector<float> values(2);
  for (const T& tensor : {bad, worse}) {
    const absl::Status status = w.engine->ToHost(tensor.get(), std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(status.message(), "fake: a kernel failed");
  }
  EXPECT_THAT(w.Read(fine), ElementsAre(1, 4));
  EXPECT_THAT(w.Read(x), ElementsAre(1, 2));
  EXPECT_THAT(w.Read(w.Op("add", {x, x})), ElementsAre(2, 4));
}

TEST(Failure, BeforeADonatingLaunchKeepsTheOldBuffer) {
  World w;
  T p = w.Vector({1, 2});
  auto update = [&] {
    T next = w.Tmp("mul", {p, w.Number(2)});
    ASSERT_TRUE(w.engine->Assign(p.get(), next.get()).ok());
  };
  update();
  w.Sync();
  update();
  w.backend->fail_executes = 2;
  EXPECT_FALSE(w.engine->Sync().ok());
  EXPECT_FALSE(w.engine->Sync().ok());
  w.Sync();
  EXPECT_THAT(w.Read(p), ElementsAre(4, 8));
  EXPECT_EQ(w.Count(Counter::kBuffersDonated), 2);
}

}  // namespace
}  // namespace weft::lazy
