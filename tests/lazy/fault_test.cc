// A training step on the CPU backend whose memory runs out at each allocation in turn: nothing is lost, and the same step
// goes through when it is asked for again.
#include <thread>

#include "src/backends/cpu/cpu_backend.h"
#include "src/lazy/optimizer.h"
#include "src/runtime/alloc_hook.h"
#include "tests/lazy/shelf.h"
#include "tests/lazy/world.h"
#include "tests/support/cpu_under_test.h"

namespace weft::lazy {
namespace {

constexpr double kRate[] = {0.1};  // of every step

// Lets `left` allocations pass, then fails all until it is told otherwise.
struct Gate {
  explicit Gate(int allowed) : left(allowed) {
    SetLargeAllocationGate(
        [](void* user, size_t) {
          auto* gate = static_cast<Gate*>(user);
          if (gate->left.fetch_sub(1) > 0) return true;
          gate->hit = true;
          return false;
        },
        this);
  }
  ~Gate() { SetLargeAllocationGate(nullptr, nullptr); }
  std::atomic<int> left;
  std::atomic<bool> hit{false};
};

std::vector<float> Wave(int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
  return values;
}

// Convolution, product, softmax: kernels of the library and generated loops, all of which want memory of their own.
struct Net {
  World w;
  T x, filter, matrix;
  Ref<Optimizer> optimizer;

  explicit Net(Shelf* shelf)
      : w({}, test::NewCpuBackend({.threads = 2}).value(), std::make_unique<FakeStore>(shelf)) {
    x = w.F32({16, 16, 16, 3}, Wave(16 * 16 * 16 * 3, 0.01f));
    filter = w.F32({3, 3, 3, 16}, Wave(3 * 3 * 3 * 16, 0.01f));
    matrix = w.F32({3136, 40}, Wave(3136 * 40, 0.001f));
    Tensor* parameters[] = {filter.get(), matrix.get()};
    for (Tensor* parameter : parameters) EXPECT_TRUE(w.engine->SetRequiresGrad(parameter, true).ok());
    OptimizerOptions options;
    options.momentum = 0.9;
    optimizer = Optimizer::Create(*w.engine, parameters, {&options, 1}).value();
  }
  void Record() {
    T h = w.Tmp("relu", {w.Tmp("conv", {x, filter})});
    T logits = w.Tmp("matmul", {w.Tmp("reshape", {h}, {ir::Ints{16, 3136}}), matrix});
    T p = w.Tmp("softmax", {logits});
    T loss = w.Sum(w.Tmp("mul", {p, p}));
    w.engine->AdoptByScope(loss.get());
    std::vector<T> g = w.Grad(loss, {filter, matrix});
    Tensor* gradients[] = {g[0].get(), g[1].get()};
    for (Tensor* gradient : gradients) w.engine->AdoptByScope(gradient);
    ASSERT_TRUE(optimizer->Step(gradients, kRate).ok());
  }
  absl::Status Sync() {
    WEFT_ASSIGN_OR_RETURN(Ref<Event> event, w.engine->Sync());
    return event->Wait();
  }
  std::vector<float> Parameters() {
    std::vector<float> all = w.Read(filter);
    for (float value : w.Read(matrix)) all.push_back(value);
    return all;
  }
};

TEST(OutOfMemory, AtAnyAllocationOfAStepLosesNothingAndTheStepCanBeRepeated) {
  Shelf shelf;
  std::vector<std::vector<float>> expected;  // parameters before and after two steps
  {
    Net net(&shelf);
    for (int step = 0; step < 2; ++step) {
      net.Record();
      ASSERT_TRUE(net.Sync().ok());
      expected.push_back(net.Parameters());
    }
    ASSERT_NE(expected[0], expected[1]);
  }
  int failures = 0;
  bool through = false;
  for (int allowed = 0; allowed < 200 && !through; ++allowed) {
    {
      SCOPED_TRACE(absl::StrCat(allowed, " allocations allowed"));
      Net net(&shelf);
      EXPECT_EQ(net.Parameters().size(), expected[0].size());
      net.Record();
      absl::Status status;
      {
        Gate gate(allowed);
        status = net.Sync();
        through = !gate.hit;
      }
      EXPECT_EQ(status.ok(), through) << status;
      if (!status.ok()) {
        ++failures;
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
        EXPECT_EQ(net.w.Read(net.x).size(), 16u * 16 * 16 * 3);
        EXPECT_TRUE(net.Sync().ok());
      }
      EXPECT_EQ(net.Parameters(), expected[0]);
      net.Record();
      EXPECT_TRUE(net.Sync().ok());
      EXPECT_EQ(net.Parameters(), expected[1]);
    }
  }
  EXPECT_TRUE(through);
  EXPECT_GE(failures, 5);  // results, the arena, and scratch of several kernels
}

// A launch that fails so late cannot be repeated, and the first one has donated too.
TEST(OutOfMemory, CannotHappenToAStepOnceTheBarrierHasReturned) {
  Shelf shelf;
  std::vector<float> expected;
  for (const bool gated : {false, true}) {
    Net net(&shelf);
    net.Record();
    absl::StatusOr<Ref<Event>> event = net.w.engine->Sync();
    ASSERT_TRUE(event.ok()) << event.status();
    if (gated) {
      Gate gate(0);
      EXPECT_TRUE((*event)->Wait().ok()) << (*event)->status();
    }
    const std::vector<float> got = net.Parameters();
    if (!gated) expected = got;
    EXPECT_EQ(got, expected);
  }
}

// Small programs run on whichever thread asks. Threads that have never run one used to need scratch of their own then,
// and a launch that fails so late cannot be repeated.
TEST(OutOfMemory, CannotHappenToAProgramThatHasRunWhicheverThreadAsks) {
  World w({}, test::NewCpuBackend({.threads = 2}).value());
  T x = w.F32({8, 512}, Wave(8 * 512, 0.01f)), m = w.F32({512, 48}, Wave(512 * 48, 0.01f));
  auto step = [&] {
    T y = w.Op("softmax", {w.Tmp("matmul", {x, m})});
    absl::StatusOr<Ref<Event>> event = w.engine->Sync();
    EXPECT_TRUE(event.ok()) << event.status();
    if (!event.ok()) return std::vector<float>();
    EXPECT_TRUE((*event)->Wait().ok()) << (*event)->status();
    return w.Read(y);
  };
  const std::vector<float> expected = step();
  step();
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      Gate gate(0);
      EXPECT_EQ(step(), expected);
    }).join();
  }
}

}  // namespace
}  // namespace weft::lazy
