// Launches: asynchronous and all or nothing from a program's first one on.
#include <cmath>

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

// A backend of its own, so that no other test's launches have left scratch behind.
struct Device {
  std::unique_ptr<CpuBackend> backend = *test::NewCpuBackend({.threads = 2});

  std::unique_ptr<Executable> Compile(Ref<const ir::Function> function) {
    const auto module = Prepared(*backend, std::move(function));
    EXPECT_TRUE(module.ok()) << module.status();
    auto compiled = backend->Compile(*module, {});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return *std::move(compiled);
  }
  // The same value everywhere; what is not `ready` yet holds launches back.
  Ref<Buffer> Filled(const Dims& dims, float value, Ref<Event> ready = Event::Done()) {
    auto pool = std::make_shared<BlockPool>();
    Ref<Block> block = *NewBlock(pool, CountOf(dims) * 4);
    std::fill_n(static_cast<float*>(block->data()), CountOf(dims), value);
    return Ref<Buffer>(new CpuBuffer(backend->devices()[0], DType::kF32, dims, std::move(ready), std::move(block)));
  }
};

// p - x x / n and a row of sums: a product with a packed operand and an epilogue, and a loop with scratch of its own.
Ref<const ir::Function> Step(int64_t n) {
  Builder b;
  const Value p = test::NewParameter(Type::Tensor(DType::kF32, {n, n}));
  const Value x = test::NewParameter(Type::Tensor(DType::kF32, {n, n}));
  const Value y = ops::Sub(b, p, ops::Mul(b, ops::BatchMatmul(b, x, ops::Transpose(b, x, {1, 0}), false, false), 1.0 / static_cast<double>(n)));
  const Value e = ops::Exp(b, ops::Sub(b, x, ops::BroadcastTo(b, ops::ReduceKeep(b, x, ops::Reducer::kMax, {1}), {n, n})));
  const Value s = ops::Div(b, e, ops::BroadcastTo(b, ops::ReduceKeep(b, e, ops::Reducer::kSum, {1}), {n, n}));
  EXPECT_TRUE(b.ok()) << b.status();
  std::vector<ir::ParameterInfo> infos(2);
  infos[0].donated_to = 0;
  return ir::Function::Create("step", {p, x}, {y, ops::Reduce(b, s, ops::Reducer::kSum, {0, 1})}, infos);
}

absl::StatusOr<DeviceResults> Launch(Executable& program, const std::vector<Ref<Buffer>>& buffers,
                                     const std::vector<uint8_t>& donated) {
  DeviceArguments arguments;
  arguments.buffers = buffers;
  arguments.donated = donated;
  WEFT_ASSIGN_OR_RETURN(std::vector<DeviceResults> results, program.Execute({&arguments, 1}));
  return std::move(results[0]);
}

void ExpectStep(DeviceResults& results, int64_t n) {
  ASSERT_TRUE(results.done->Wait().ok()) << results.done->status();
  const float* y = static_cast<const float*>(results.buffers[0]->host_data());
  for (int64_t i = 0; i < n * n; ++i) ASSERT_NEAR(y[i], 3 - 4, 1e-4) << i;
  EXPECT_NEAR(*static_cast<const float*>(results.buffers[1]->host_data()), static_cast<double>(n), 1e-3 * static_cast<double>(n));
}

TEST(FirstLaunch, ReturnsBeforeItsKernelsHaveRun) {
  Device device;
  const auto program = device.Compile(Step(100));
  const Ref<Event> ready = MakeRef<Event>();
  auto results = Launch(*program, {device.Filled({100, 100}, 3, ready), device.Filled({100, 100}, 2)}, {});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_FALSE(results->done->done());
  ready->Complete(absl::OkStatus());
  ExpectStep(*results, 100);
}

TEST(FirstLaunch, TakesDonatedMemoryOver) {
  Device device;
  const auto program = device.Compile(Step(100));
  Ref<Buffer> p = device.Filled({100, 100}, 3);
  void* const memory = p->host_data();
  auto results = Launch(*program, {p, device.Filled({100, 100}, 2)}, {1, 0});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->buffers[0]->host_data(), memory);
  ExpectStep(*results, 100);
}

// The gate lets so many allocations of this thread's launch pass.
struct Gate {
  explicit Gate(int allowed) : left(allowed) {
    SetLargeAllocationGate([](void* user, size_t) { return --static_cast<Gate*>(user)->left >= 0; }, this);
  }
  ~Gate() { SetLargeAllocationGate(nullptr, nullptr); }
  std::atomic<int> left;
};

TEST(FirstLaunch, ThatFindsNoMemoryChangesNothingAndCanBeRepeated) {
  int failures = 0;
  for (int allowed = 0; allowed < 50; ++allowed) {
    SCOPED_TRACE(allowed);
    Device device;
    const auto program = device.Compile(Step(300));
    Ref<Buffer> p = device.Filled({300, 300}, 3);
    Ref<Buffer> x = device.Filled({300, 300}, 2);
    absl::StatusOr<DeviceResults> results;
    {
      const Gate gate(allowed);
      results = Launch(*program, {p, x}, {1, 0});
      if (results.ok()) {
        ASSERT_TRUE(results->done->Wait().ok()) << results->done->status();
      }
    }
    if (results.ok()) {
      EXPECT_GE(failures, 4);  // results, the arena, scratch of the product and of the loop
      return ExpectStep(*results, 300);
    }
    ++failures;
    EXPECT_EQ(results.status().code(), absl::StatusCode::kResourceExhausted) << results.status();
    for (int64_t i = 0; i < 300 * 300; ++i) ASSERT_EQ(static_cast<const float*>(p->host_data())[i], 3.0f);
    results = Launch(*program, {p, x}, {1, 0});
    ASSERT_TRUE(results.ok()) << results.status();
    ExpectStep(*results, 300);
  }
  FAIL() << "never had enough";
}

TEST(FirstLaunch, NeedsNoMemoryOnceItHasReturned) {
  Device device;
  const auto program = device.Compile(Step(300));
  const Ref<Event> ready = MakeRef<Event>();
  auto results = Launch(*program, {device.Filled({300, 300}, 3, ready), device.Filled({300, 300}, 2)}, {1, 0});
  ASSERT_TRUE(results.ok()) << results.status();
  const Gate gate(0);
  ready->Complete(absl::OkStatus());
  ExpectStep(*results, 300);
}

// The second program's scratch is larger and comes while the first, which has begun to wait for its argument, holds its own.
TEST(FirstLaunch, OfALargerProgramLeavesARunningOneItsScratch) {
  Device device;
  const auto small = device.Compile(Step(40));
  const auto large = device.Compile(Step(400));
  const Ref<Event> ready = MakeRef<Event>();
  auto first = Launch(*small, {device.Filled({40, 40}, 3, ready), device.Filled({40, 40}, 2)}, {});
  auto second = Launch(*large, {device.Filled({400, 400}, 3), device.Filled({400, 400}, 2)}, {});
  auto third = Launch(*small, {device.Filled({40, 40}, 3), device.Filled({40, 40}, 2)}, {});
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_FALSE(second->done->done());
  ready->Complete(absl::OkStatus());
  ExpectStep(*first, 40);
  ExpectStep(*second, 400);
  ExpectStep(*third, 40);
}

}  // namespace
}  // namespace weft::cpu
