// Programs on their way through the cache, the memory plan, launches.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "src/backends/cpu/executable.h"
#include "src/ops/build.h"
#include "src/runtime/alloc_hook.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/cpu_under_test.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Type;
using ir::Value;

HostTensor Filled(DType dtype, Dims dims, uint64_t seed) {
  HostTensor t(dtype, std::move(dims));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> values(-1, 1);
  for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, values(random));
  return t;
}

// Two layers with softmax, their loss gradients by hand, and updates in place: what an MLP step is made of.
struct Mlp {
  Ref<const ir::Function> function;
  std::vector<HostTensor> arguments;
};
Mlp MakeMlp() {
  Builder b;
  Value x = test::NewParameter(Type::Tensor(DType::kF32, {64, 30}));
  Value w1 = test::NewParameter(Type::Tensor(DType::kF32, {30, 48}));
  Value b1 = test::NewParameter(Type::Tensor(DType::kF32, {48}));
  Value w2 = test::NewParameter(Type::Tensor(DType::kF32, {48, 10}));
  Value target = test::NewParameter(Type::Tensor(DType::kF32, {64, 10}));
  const auto dot = [&](const Value& l, const Value& r, int64_t lc, int64_t rc) {
    return ops::Call(b, ops::kOp_dot_general, {l, r}, {ir::Ints{}, ir::Ints{}, ir::Ints{lc}, ir::Ints{rc}});
  };
  Value pre = ops::Add(b, dot(x, w1, 1, 0), ops::BroadcastInDim(b, b1, {64, 48}, {1}));
  Value zero = ops::FullLike(b, pre, 0);
  Value h = ops::Maximum(b, pre, zero);
  Value logits = dot(h, w2, 1, 0);
  Value e = ops::Exp(b, ops::Sub(b, logits, ops::BroadcastTo(b, ops::ReduceKeep(b, logits, ops::Reducer::kMax, {1}), {64, 10})));
  Value p = ops::Div(b, e, ops::BroadcastTo(b, ops::ReduceKeep(b, e, ops::Reducer::kSum, {1}), {64, 10}));
  Value g = ops::Mul(b, ops::Sub(b, p, target), 1.0 / 64);
  Value dh = ops::Select(b, ops::Compare(b, ops::Direction::kGt, pre, zero), dot(g, w2, 1, 1), zero);
  Value new_w1 = ops::Sub(b, w1, ops::Mul(b, dot(x, dh, 0, 0), 0.1));
  Value new_b1 = ops::Sub(b, b1, ops::Mul(b, ops::Reduce(b, dh, ops::Reducer::kSum, {0}), 0.1));
  Value new_w2 = ops::Sub(b, w2, ops::Mul(b, dot(h, g, 0, 0), 0.1));
  Value loss = ops::Reduce(b, ops::Mul(b, ops::Log(b, p), target), ops::Reducer::kSum, {0, 1});
  EXPECT_TRUE(b.ok()) << b.status();
  std::vector<ir::ParameterInfo> infos(5);
  infos[1].donated_to = 0;
  infos[2].donated_to = 1;
  infos[3].donated_to = 2;
  Mlp mlp;
  mlp.function = ir::Function::Create("mlp", {x, w1, b1, w2, target}, {new_w1, new_b1, new_w2, loss}, infos);
  mlp.arguments = {Filled(DType::kF32, {64, 30}, 1), Filled(DType::kF32, {30, 48}, 2), Filled(DType::kF32, {48}, 3),
                   Filled(DType::kF32, {48, 10}, 4), Filled(DType::kF32, {64, 10}, 5)};
  return mlp;
}

void ExpectNear(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < got.size(); ++r) {
    EXPECT_EQ(test::Differences(got[r], want[r], {.f32 = tolerance, .absolute = tolerance}), "") << "result " << r;
  }
}

TEST(CpuProgram, TrainingStepAgreesWithTheReferenceAndDonatesItsParameters) {
  const Mlp mlp = MakeMlp();
  const auto want = reference::Interpret(*mlp.function, mlp.arguments);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const std::string& isa : TestIsas()) {
    const auto got = RunOnCpu(TestBackend(), mlp.function, mlp.arguments, isa);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNear(*got, *want, 2e-5);
  }
  const auto lowered = FusedAndLowered(mlp.function);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->program.donor, (std::vector<int32_t>{1, 2, 3, -1}));
  // Five products; the rest is a handful of kernels.
  EXPECT_LE(lowered->program.lists[0].size(), 13u) << ToString(lowered->program);
}

// What follows a product element by element runs on its blocks. Sizes that no tile divides, sums of one block and of
// several, a product that somebody else wants too, and one whose loop reads it crosswise.
TEST(CpuProgram, LoopsJoinTheProductsThatTheyFollow) {
  struct Case {
    int64_t m, k, n;
    bool kept, crosswise;
    std::string_view text;
  };
  for (const Case& c : {Case{61, 70, 150, false, false, "gemm then loop"}, Case{61, 1000, 33, false, false, "gemm then loop"},
                        Case{500, 64, 128, true, false, "gemm then loop"}, Case{1, 300, 10, false, false, "gemm then loop"},
                        Case{70, 1, 1, false, false, "gemm then loop"}, Case{40, 30, 40, false, true, "gemm:"}}) {
    Builder b;
    Value x = test::NewParameter(Type::Tensor(DType::kF32, {c.m, c.k}));
    Value w = test::NewParameter(Type::Tensor(DType::kF32, {c.k, c.n}));
    Value bias = test::NewParameter(Type::Tensor(DType::kF32, {c.n}));
    Value old = test::NewParameter(Type::Tensor(DType::kF32, {c.m, c.n}));
    Value product = ops::Call(b, ops::kOp_dot_general, {x, w}, {ir::Ints{}, ir::Ints{}, ir::Ints{1}, ir::Ints{0}});
    Value sum = ops::Add(b, product, ops::BroadcastInDim(b, bias, {c.m, c.n}, {1}));
    if (c.crosswise) sum = ops::Add(b, sum, ops::Call(b, ops::kOp_transpose, {product}, {ir::Ints{1, 0}}));
    Value y = ops::Sub(b, old, ops::Mul(b, ops::Maximum(b, sum, ops::FullLike(b, sum, 0)), 0.5));
    ASSERT_TRUE(b.ok()) << b.status();
    std::vector<ir::ParameterInfo> infos(4);
    infos[3].donated_to = 0;
    std::vector<Value> results = {y};
    if (c.kept) results.push_back(product);
    const auto function = ir::Function::Create("f", {x, w, bias, old}, results, infos);
    const std::vector<HostTensor> arguments = {Filled(DType::kF32, {c.m, c.k}, 1), Filled(DType::kF32, {c.k, c.n}, 2),
                                               Filled(DType::kF32, {c.n}, 3), Filled(DType::kF32, {c.m, c.n}, 4)};
    const auto want = reference::Interpret(*function, arguments);
    ASSERT_TRUE(want.ok()) << want.status();
    for (const std::string& isa : TestIsas()) {
      const auto got = RunOnCpu(TestBackend(), function, arguments, isa);
      ASSERT_TRUE(got.ok()) << got.status();
      ExpectNear(*got, *want, 1e-4);
    }
    const auto lowered = FusedAndLowered(function);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const std::string text = ToString(lowered->program);
    EXPECT_NE(text.find(c.text), std::string::npos) << text;
    EXPECT_EQ(lowered->program.donor[0], 3) << text;
  }
}

// A normalisation by known variances holds a root and a division a feature. They are computed once, not for every element, and
// before the product, so that what is left of the normalisation still joins it.
TEST(CpuProgram, FactorsOfANormalisationStandBeforeTheProductThatItFollows) {
  Builder b;
  const Value x = test::NewParameter(Type::Tensor(DType::kF32, {61, 70})), w = test::NewParameter(Type::Tensor(DType::kF32, {70, 48}));
  std::vector<Value> inputs = {x, w};
  for (int i = 0; i < 4; ++i) inputs.push_back(test::NewParameter(Type::Tensor(DType::kF32, {48})));
  ir::Values given = {ops::Call(b, ops::kOp_dot_general, {x, w}, {ir::Ints{}, ir::Ints{}, ir::Ints{1}, ir::Ints{0}})};
  for (size_t i = 2; i < inputs.size(); ++i) given.push_back(inputs[i]);
  const Value y = ops::Call(b, ops::kOp_batch_norm_inference, given);
  ASSERT_TRUE(b.ok()) << b.status();
  const auto function = ir::Function::Create("f", inputs, {y});
  std::vector<HostTensor> arguments;
  for (const Value& input : inputs) {
    HostTensor argument = Filled(input.dtype(), input.dims(), static_cast<int>(arguments.size()) + 1);
    if (arguments.size() == 5) {  // a variance
      for (int64_t i = 0; i < argument.count(); ++i) argument.SetDouble(i, 0.5 + static_cast<double>(i % 7));
    }
    arguments.push_back(std::move(argument));
  }
  const auto want = reference::Interpret(*function, arguments);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const std::string& isa : TestIsas()) {
    const auto got = RunOnCpu(TestBackend(), function, arguments, isa);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNear(*got, *want, 1e-4);
  }
  const auto lowered = FusedAndLowered(function);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->program.lists[0].size(), 2u) << ToString(lowered->program);
  EXPECT_EQ(lowered->program.lists[0][0].type, Entry::Type::kLoop);
  EXPECT_GE(lowered->program.lists[0][1].epilogue, 0);
}

TEST(CpuProgram, BitsDoNotDependOnTheNumberOfThreads) {
  const Mlp mlp = MakeMlp();
  auto one = test::NewCpuBackend({.threads = 1});
  auto two = test::NewCpuBackend({.threads = 2});
  ASSERT_TRUE(one.ok() && two.ok());
  const auto a = RunOnCpu(**one, mlp.function, mlp.arguments);
  const auto b = RunOnCpu(**two, mlp.function, mlp.arguments);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(*a, *b);
}

TEST(CpuProgram, ComesBackFromItsBytesWithoutCompiling) {
  const Mlp mlp = MakeMlp();
  auto first = test::NewCpuBackend({.threads = 2});
  auto second = test::NewCpuBackend({.threads = 2});
  ASSERT_TRUE(first.ok() && second.ok());
  const auto module = Prepared(**first, mlp.function);
  ASSERT_TRUE(module.ok());
  auto compiled = (*first)->Compile(*module, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_GT((*compiled)->stats().kernels_compiled, 0);
  const auto bytes = (*compiled)->Serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto loaded = (*second)->Load(*bytes);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->stats().kernels_compiled, 0);
  const auto a = RunExecutable(**first, **compiled, mlp.arguments);
  const auto b = RunExecutable(**second, **loaded, mlp.arguments);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(*a, *b);
}

TEST(CpuProgram, DamagedBytesAreRefused) {
  const Mlp mlp = MakeMlp();
  CpuBackend& backend = TestBackend();
  const auto module = Prepared(backend, mlp.function);
  auto compiled = backend.Compile(*module, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::string bytes = *(*compiled)->Serialize();
  EXPECT_EQ(backend.Load("").status().message(), "compiled program is not a valid message: its length is 0 bytes");
  EXPECT_EQ(backend.Load(std::string(100, 'x')).status().code(), absl::StatusCode::kDataLoss);
  for (size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 97) {
    EXPECT_EQ(backend.Load(bytes.substr(0, cut)).status().code(), absl::StatusCode::kDataLoss) << cut;
  }
  // Flipped bits are what the cache entry's checksums are for; here they are refused or give a program that makes sense.
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    damaged[random() % (i % 2 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 4096))] ^=
        static_cast<char>(1 + random() % 255);
    const auto parsed = ParseProgram(damaged);
    if (parsed.ok()) {
      EXPECT_TRUE(CheckProgram(*parsed).ok());
    } else {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << parsed.status();
    }
  }
  std::string longer = bytes + "x";
  EXPECT_EQ(backend.Load(longer).status().code(), absl::StatusCode::kDataLoss);
}

TEST(CpuProgram, CodeThatCannotBeLinkedIsRefused) {
  const Mlp mlp = MakeMlp();
  auto backend = test::NewCpuBackend({.threads = 2});
  ASSERT_TRUE(backend.ok());
  const auto module = Prepared(TestBackend(), mlp.function);
  auto compiled = TestBackend().Compile(*module, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  Program program = *ParseProgram(*(*compiled)->Serialize());
  ASSERT_FALSE(program.objects.empty());
  auto damaged = std::make_shared<CodeObject>(*program.objects[0]);
  damaged->bytes.resize(damaged->bytes.size() / 2);
  program.objects[0] = damaged;
  const absl::Status status = (*backend)->Load(*EncodeProgram(program)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(status.message().starts_with("compiled object cannot be read: ")) << status;
}

TEST(CpuProgram, EqualStepsShareTheirCode) {
  Builder b;
  Value x = test::NewParameter(Type::Tensor(DType::kF32, {100}));
  std::vector<Value> results;
  for (int i = 0; i < 300; ++i) {
    // Results of many sizes, each its own launch.
    Value slice = ops::Slice(b, x, {0}, {1 + i % 100}, {1});
    results.push_back(ops::Exp(b, ops::Mul(b, slice, 2.0)));
  }
  ASSERT_TRUE(b.ok());
  auto backend = test::NewCpuBackend({.threads = 2});
  const auto module = Prepared(**backend, ir::Function::Create("many", {x}, results));
  ASSERT_TRUE(module.ok());
  auto compiled = (*backend)->Compile(*module, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_LE((*compiled)->stats().kernels_compiled, 4);
}

TEST(BlockPool, GivesBackWhatItKeepsBeforeItSaysThatThereIsNoMemory) {
  auto pool = std::make_shared<BlockPool>();
  pool->Give(*pool->Take(1 << 20), 1 << 20);
  const int64_t live = GetLargeMemoryStats().live_bytes;
  // Memory for one at a time: the first request fails, after giving back the second does not.
  static std::atomic<int> asked{0};
  asked = 0;
  SetLargeAllocationGate([](void*, size_t) { return ++asked != 1; }, nullptr);
  absl::StatusOr<void*> block = pool->Take(4 << 20);
  const int64_t peak = pool->peak();
  SetLargeAllocationGate([](void*, size_t) { return false; }, nullptr);
  EXPECT_EQ(pool->Take(int64_t{1} << 40).status().code(), absl::StatusCode::kResourceExhausted);
  SetLargeAllocationGate(nullptr, nullptr);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_LT(GetLargeMemoryStats().live_bytes, live + (5 << 20));
  EXPECT_EQ(pool->peak(), peak);  // what could not be had was never in use
  pool->Give(*block, 4 << 20);
}

TEST(BlockPool, GivesBackWhatNobodyTookFor64Launches) {
  auto pool = std::make_shared<BlockPool>();
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(*pool->Take(1 << 20));
  for (void* block : blocks) pool->Give(block, 1 << 20);
  void* const other = *pool->Take(5 << 20);
  pool->Give(other, 5 << 20);
  const int64_t live = GetLargeMemoryStats().live_bytes, kept = pool->kept();
  // One of the three is used in every launch; none has been left alone for so long at the first look.
  const auto launches = [&] {
    for (int64_t i = 0; i < BlockPool::kKeepLaunches; ++i) {
      pool->Launches();
      pool->Give(*pool->Take(1 << 20), 1 << 20);
    }
  };
  launches();
  EXPECT_EQ(pool->kept(), kept);
  launches();
  const int64_t one = pool->kept();
  EXPECT_LT(one, 2 << 20);
  EXPECT_GE(one, 1 << 20);
  EXPECT_EQ(GetLargeMemoryStats().live_bytes, live - (kept - one));
  launches();
  EXPECT_EQ(pool->kept(), one);
  EXPECT_TRUE(pool->GiveBack());
  EXPECT_EQ(pool->kept(), 0);
  EXPECT_FALSE(pool->GiveBack());
}

TEST(CpuBackend, OfOneProcessShareTheirThreads) {
  auto a = test::NewCpuBackend({.threads = 2}), b = test::NewCpuBackend({.threads = 2}), c = test::NewCpuBackend({.threads = 1});
  EXPECT_EQ((*a)->pool(), (*b)->pool());
  EXPECT_NE((*a)->pool(), (*c)->pool());
}

TEST(CpuBackend, MeasuresItsLaunchesAndTracesThem) {
  std::vector<std::string> said;
  BackendServices services;
  services.log = {[&](LogLevel, std::string_view text) { said.emplace_back(text); }};
  services.budget = std::make_shared<MemoryBudget>(int64_t{1} << 30);
  auto backend = test::NewCpuBackend({.threads = 2, .services = services});
  EXPECT_THAT(said, testing::ElementsAre(testing::AllOf(testing::StartsWith("platform cpu: "), testing::EndsWith("limit 1073741824"))));
  Builder b;
  const Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {Type::Tensor(DType::kF32, {8, 8})}), 0};
  const auto module = Prepared(**backend, ir::Function::Create("short", {x}, {ops::BatchMatmul(b, x, x, false, false)}));
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(services.trace->Start(1 << 16).ok());
  auto compiled = (*backend)->Compile(*module, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::vector<HostTensor> arguments{Filled(DType::kF32, {8, 8}, 1)};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(RunExecutable(**backend, **compiled, arguments).ok());
  ASSERT_TRUE(services.trace->Stop().ok());
  std::vector<std::string> names, kernels;
  std::vector<int64_t> given, ran;
  const auto record = services.trace->Record();
  ASSERT_TRUE(record.ok()) << record.status();
  for (const TraceSpan& span : record->spans) {
    if (span.name->kind == SpanKind::kLaunch || span.name == &kCompileSpan) names.emplace_back(span.name->text);
    if (span.name->kind == SpanKind::kLaunch) (names.back() == "run" ? ran : given).push_back(span.argument);
    if (span.name->kind != SpanKind::kKernel) continue;
    kernels.emplace_back(span.name->text);
    EXPECT_EQ(span.name->flops, 2 * 8 * 8 * 8);
    EXPECT_EQ(span.name->bytes_written, 8 * 8 * 4);
    EXPECT_THAT(std::string(span.name->implementation), testing::MatchesRegex("gemm .* f32"));
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("compile", "hand over", "hand over", "hand over", "run", "run", "run"));
  EXPECT_THAT(given, testing::UnorderedElementsAreArray(ran));  // an arrow goes from each call to its launch
  EXPECT_THAT(kernels, testing::ElementsAre("gemm", "gemm", "gemm"));
  // The same from bytes, where nobody knows positions.
  const auto loaded = (*backend)->Load(*(*compiled)->Serialize());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (const Executable* executable : {compiled->get(), loaded->get()}) {
    const LaunchDescription description = executable->Describe();
    ASSERT_EQ(description.kernels.size(), 1u);
    EXPECT_EQ(description.kernels[0].name, "gemm");
    EXPECT_EQ(description.kernels[0].flops, 2 * 8 * 8 * 8);
    EXPECT_EQ(description.kernels[0].bytes_read, 2 * 8 * 8 * 4);
    EXPECT_THAT(description.kernels[0].operations, testing::Contains("dot_general"));
    ASSERT_EQ(description.kernels[0].buffers.size(), 3u);
    EXPECT_EQ(description.kernels[0].buffers[2].place, "result");
  }
  EXPECT_EQ(services.metrics->Summarize(Sample::kRun).count, 3);
  EXPECT_GT(services.metrics->Summarize(Sample::kRun).sum, 0);
}

TEST(CpuBackend, LaunchesNothingOnceItIsClosed) {
  Builder b;
  const Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {Type::Tensor(DType::kF32, {8, 8})}), 0};
  auto backend = test::NewCpuBackend({.threads = 2});
  const auto module = Prepared(**backend, ir::Function::Create("short", {x}, {ops::BatchMatmul(b, x, x, false, false)}));
  ASSERT_TRUE(module.ok()) << module.status();
  auto compiled = (*backend)->Compile(*module, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::vector<HostTensor> arguments{Filled(DType::kF32, {8, 8}, 1)};
  ASSERT_TRUE(RunExecutable(**backend, **compiled, arguments).ok());
  (*backend)->Close();
  EXPECT_EQ((*backend)->pool(), nullptr);
  EXPECT_EQ(RunExecutable(**backend, **compiled, arguments).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(LaunchQueue, DoesWhatWaitsBeforeItsThreadEnds) {
  LaunchQueue queue;
  int done = 0;  // one after the other, whoever does it
  for (int i = 0; i < 100; ++i) queue.Submit([&done] { ++done; }, WorkQueue::By::kQueue);
  queue.Close();
  EXPECT_EQ(done, 100);
  queue.Submit([&done] { ++done; }, WorkQueue::By::kQueue);
  EXPECT_EQ(done, 101);
  EXPECT_FALSE(queue.NeedThread().ok());
}

// Who waits takes a piece that has not begun, in its turn and only if it may.
TEST(LaunchQueue, WhoWaitsHelps) {
  constexpr int kPieces = 2000;
  LaunchQueue queue;
  std::vector<int> order;
  int here = 0;
  bool stranger = false;
  const std::thread::id self = std::this_thread::get_id();
  for (int i = 0; i < kPieces; ++i) {
    const bool own = i % 4 == 3;  // for the queue's thread alone
    queue.Submit(
        [&, i, own] {
          order.push_back(i);
          const bool ours = std::this_thread::get_id() == self;
          here += ours ? 1 : 0;
          stranger = stranger || (ours && own);
        },
        own ? WorkQueue::By::kQueue : WorkQueue::By::kWaiter);
    while (i % 2 == 0 && queue.Help()) {}
  }
  queue.Drain();
  EXPECT_FALSE(queue.Help());
  EXPECT_EQ(order.size(), kPieces);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_FALSE(stranger);
  EXPECT_GT(here, 0);  // waking a thread takes longer than asking
}

// The queue's thread, which the pieces before it did not wake, finds one that nobody waits for; also after it has stopped looking.
TEST(LaunchQueue, DoesWhatNobodyHelpsWith) {
  LaunchQueue queue;
  std::atomic<int> done{0};
  for (int i = 0; i < 60; ++i) {
    queue.Submit([&] { ++done; }, WorkQueue::By::kWaiter);
    while (queue.Help()) {}
    queue.Drain();
    if (i % 20 == 19) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    queue.Submit([&] { ++done; }, WorkQueue::By::kWaiter);
    queue.Drain();
    EXPECT_EQ(done, 2 * i + 2);
  }
}

#if !defined(WEFT_SANITIZED)  // a forked child of a threaded process is outside what the sanitizers support
// With one thread the pool has no workers that a fork could lose; the queue has its thread all the same.
TEST(LaunchQueue, SaysInAForkedChildThatItsThreadIsNotThere) {
  Builder b;
  Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {Type::Tensor(DType::kF32, {512, 512})}), 0}, y = x;
  for (int i = 0; i < 4; ++i) y = ops::BatchMatmul(b, y, x, false, false);
  auto backend = test::NewCpuBackend({.threads = 1});
  const auto module = Prepared(**backend, ir::Function::Create("long", {x}, {y}));
  ASSERT_TRUE(module.ok()) << module.status();
  auto compiled = (*backend)->Compile(*module, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::vector<HostTensor> arguments{Filled(DType::kF32, {512, 512}, 1)};
  ASSERT_TRUE(RunExecutable(**backend, **compiled, arguments).ok());
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = RunExecutable(**backend, **compiled, arguments).status();
    compiled->reset();
    backend->reset();
    _exit(status.code() == absl::StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

TEST(MemoryPlan, LiveStoragesNeverOverlap) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lifetimes;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random() % 80);
      lifetimes.push_back({static_cast<int64_t>(random() % 20000), first, first + static_cast<int>(random() % 20), 0});
    }
    const int64_t total = PlanArena(lifetimes);
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      EXPECT_EQ(lifetimes[i].offset % 64, 0);
      EXPECT_LE(lifetimes[i].offset + lifetimes[i].bytes + 64, total);
      for (size_t j = 0; j < i; ++j) {
        const Lifetime &a = lifetimes[i], &b = lifetimes[j];
        if (a.last < b.first || b.last < a.first) continue;
        EXPECT_TRUE(a.offset + a.bytes + 64 <= b.offset || b.offset + b.bytes + 64 <= a.offset);
      }
    }
  }
}

// What the plan was before it looked at neighbours in time only: the same offsets, found the slow way.
int64_t PlanAmongAll(std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order(lifetimes.size()), placed;
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  const auto padded = [](int64_t bytes) {
    const int64_t rounded = (bytes + 63) / 64 * 64;
    return rounded + (rounded % 4096 == 0 ? 128 : 64);
  };
  int64_t total = 0;
  for (size_t i : order) {
    Lifetime& one = lifetimes[i];
    int64_t at = 0, best = -1, best_gap = 0;
    for (size_t p : placed) {
      if (lifetimes[p].last < one.first || one.last < lifetimes[p].first) continue;
      const int64_t gap = lifetimes[p].offset - at;
      if (gap >= padded(one.bytes) && (best < 0 || gap < best_gap)) best = at, best_gap = gap;
      at = std::max(at, lifetimes[p].offset + padded(lifetimes[p].bytes));
    }
    one.offset = best >= 0 ? best : at;
    total = std::max(total, one.offset + padded(one.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return lifetimes[a].offset < lifetimes[b].offset; }), i);
  }
  return total;
}

TEST(MemoryPlan, IsTheBestFitAmongAllThatLiveAtOnce) {
  std::mt19937 random(12);
  for (int round = 0; round < 30; ++round) {
    const int entries = 50 + static_cast<int>(random() % 3000);
    std::vector<Lifetime> lifetimes;
    for (int i = 0; i < 1000; ++i) {
      const int first = static_cast<int>(random() % entries);
      // Mostly short, some as long as activations that wait for the backward pass.
      const int length = random() % 8 == 0 ? static_cast<int>(random() % entries) : static_cast<int>(random() % 6);
      lifetimes.push_back({static_cast<int64_t>(random() % 9) * 2048, first, std::min(first + length, entries), 0});
      // In every third round half of them within one another: what is made last goes first.
      if (round % 3 == 0 && i % 2 == 0) lifetimes.back().last = std::max(first, entries - first);
    }
    std::vector<Lifetime> slow = lifetimes;
    EXPECT_EQ(PlanArena(lifetimes), PlanAmongAll(slow));
    for (size_t i = 0; i < slow.size(); ++i) ASSERT_EQ(lifetimes[i].offset, slow[i].offset) << i;
  }
}

// A chain of kernels: took a minute when every storage was compared with every other.
TEST(MemoryPlan, OfManyShortLivesIsSmallAndSoonMade) {
  std::vector<Lifetime> lifetimes;
  for (int i = 0; i < 300'000; ++i) lifetimes.push_back({256, i, i + 1, 0});
  EXPECT_EQ(PlanArena(lifetimes), 2 * 320);
}

// Five temporaries of 2^61 bytes at once: the sum of their sizes does not fit 64 bits.
TEST(MemoryPlan, TemporariesLargerThanAnyMemoryAreRefused) {
  Builder b;
  std::vector<Value> parameters;
  Value sum;
  for (int i = 0; i < 5; ++i) {
    Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {Type::Scalar(DType::kF64)}), 0};
    parameters.push_back(x);
    const int64_t n = int64_t{1} << 29;
    Value product = ops::BatchMatmul(b, ops::BroadcastInDim(b, x, {n, 1}, {}),
                                     ops::BroadcastInDim(b, x, {1, n}, {}), false, false);
    sum = sum ? ops::Add(b, sum, product) : product;
  }
  sum = ops::Reduce(b, sum, ops::Reducer::kSum, {0, 1});
  ASSERT_TRUE(b.ok()) << b.status();
  const std::vector<HostTensor> arguments(5, Filled(DType::kF64, {}, 1));
  const auto results = RunOnCpu(TestBackend(), ir::Function::Create("huge", parameters, {sum}), arguments);
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.status().code(), absl::StatusCode::kResourceExhausted) << results.status();
  EXPECT_NE(results.status().message().find("bytes"), results.status().message().npos) << results.status();
}

// Random graphs of elementwise operations, broadcasts, transposes and reductions, fused, against the reference.
TEST(CpuProgram, RandomGraphsAgreeWithTheReference) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Builder b;
    const int64_t n = 3 + static_cast<int64_t>(random() % 20), m = 3 + static_cast<int64_t>(random() % 40);
    std::vector<Value> parameters, full, rows, columns;
    for (int i = 0; i < 2; ++i) {
      parameters.push_back(test::NewParameter(Type::Tensor(DType::kF32, {n, m})));
      full.push_back(parameters.back());
    }
    parameters.push_back(test::NewParameter(Type::Tensor(DType::kF32, {n})));
    rows.push_back(parameters.back());
    parameters.push_back(test::NewParameter(Type::Tensor(DType::kF32, {m})));
    columns.push_back(parameters.back());
    const auto pick = [&](const std::vector<Value>& from) { return from[random() % from.size()]; };
    for (int i = 0; i < 25; ++i) {
      switch (random() % 9) {
        case 0: full.push_back(ops::Add(b, pick(full), pick(full))); break;
        case 1: full.push_back(ops::Mul(b, pick(full), ops::BroadcastInDim(b, pick(columns), {n, m}, {1}))); break;
        case 2: full.push_back(ops::Sub(b, pick(full), ops::BroadcastInDim(b, pick(rows), {n, m}, {0}))); break;
        case 3: full.push_back(ops::Tanh(b, pick(full))); break;
        case 4: rows.push_back(ops::Tanh(b, ops::Reduce(b, pick(full), random() % 2 ? ops::Reducer::kSum : ops::Reducer::kMax, {1}))); break;
        case 5: columns.push_back(ops::Tanh(b, ops::Reduce(b, pick(full), ops::Reducer::kSum, {0}))); break;
        case 6: rows.push_back(ops::Add(b, pick(rows), pick(rows))); break;
        case 7: full.push_back(ops::Transpose(b, ops::Transpose(b, pick(full), {1, 0}), {1, 0})); break;
        case 8: full.push_back(ops::Maximum(b, ops::Reverse(b, pick(full), {static_cast<int64_t>(random() % 2)}), pick(full))); break;
      }
    }
    ASSERT_TRUE(b.ok()) << b.status();
    std::vector<Value> results = {full.back(), rows.back(), columns.back(), pick(full)};
    const auto function = ir::Function::Create("random", parameters, results);
    std::vector<HostTensor> arguments;
    for (size_t i = 0; i < parameters.size(); ++i) arguments.push_back(Filled(DType::kF32, parameters[i].dims(), seed * 10 + i));
    const auto want = reference::Interpret(*function, arguments);
    ASSERT_TRUE(want.ok()) << want.status();
    const auto got = RunOnCpu(TestBackend(), function, arguments);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNear(*got, *want, 1e-4);
  }
}

}  // namespace
}  // namespace weft::cpu
