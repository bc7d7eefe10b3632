// Several threads in one engine and in two, on the backend that ships: recording, assigning, cutting, reading, exporting,
// and releasing what another thread made. The values are checked here; ThreadSanitizer looks at the rest.
#include <array>
#include <thread>

#include "src/backends/cpu/cpu_backend.h"
#include "tests/lazy/world.h"
#include "tests/support/cpu_under_test.h"

namespace weft::lazy {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 40;

// Tensors that one thread leaves for another to release.
class Exchange {
 public:
  T Swap(size_t slot, T tensor) {
    std::lock_guard lock(mutex_);
    std::swap(slots_[slot % slots_.size()], tensor);
    return tensor;
  }

 private:
  std::mutex mutex_;
  std::array<T, 3> slots_;
};

// `counter` is this thread's own and goes up by one a round; `shared` is everybody's and never changes.
void Rounds(World& w, const T& shared, int id, Exchange& exchange) {
  T counter = w.Vector({0, 0});
  T weight = w.Vector({1, 2});
  EXPECT_TRUE(w.engine->SetRequiresGrad(weight.get(), true).ok());
  for (int round = 1; round <= kRounds; ++round) {
    T next = w.Op("add", {counter, w.Number(1)});
    EXPECT_TRUE(w.engine->Assign(counter.get(), next.get()).ok());
    T product = w.Op("mul", {counter, shared});
    T loss = w.Sum(w.Op("mul", {weight, product}));
    Tensor* wrt[] = {weight.get()};
    absl::StatusOr<Tensors> gradient = w.engine->Gradient(loss.get(), wrt);
    const auto n = static_cast<float>(round);
    if (gradient.ok()) {
      EXPECT_THAT(w.Read((*gradient)[0]), ElementsAre(3 * n, 4 * n));
    } else {
      // Another thread's barrier came between the loss and this.
      EXPECT_EQ(gradient.status().code(), absl::StatusCode::kFailedPrecondition);
    }
    exchange.Swap(static_cast<size_t>(round + id), loss);
    loss = nullptr;
    switch ((round + id) % 4) {
      case 0:
        EXPECT_TRUE(w.engine->Sync().ok());
        break;
      case 1:
        EXPECT_THAT(w.Read(product), ElementsAre(3 * n, 4 * n));
        break;
      case 2: {
        absl::StatusOr<Ref<Buffer>> buffer = w.engine->ToBuffer(counter.get());
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        EXPECT_TRUE((*buffer)->ready().Wait().ok());
        EXPECT_EQ(static_cast<const float*>((*buffer)->host_data())[0], n);
        (*buffer)->Unhold();
        break;
      }
      default:
        EXPECT_TRUE(w.engine->Eval(std::vector<Tensor*>{next.get()}).ok());
        break;
    }
    if (round % 10 == 0) {
      EXPECT_THAT(ReportOf(w.engine->TakeSnapshot()), HasSubstr("cuts: "));
      EXPECT_TRUE(w.engine->Wait().ok());
    }
  }
  const auto n = static_cast<float>(kRounds);
  EXPECT_THAT(w.Read(counter), ElementsAre(n, n));
}

TEST(Threads, ShareOneEngineAndUseTwo) {
  Options options;
  options.max_pending_nodes = 6;  // automatic cuts too
  World one(options, test::NewCpuBackend({.threads = 2}).value());
  World two({}, test::NewCpuBackend({.threads = 2}).value());
  for (World* w : {&one, &two}) {
    T shared = w->Vector({3, 4});
    Exchange exchange;
    std::vector<std::thread> threads;
    for (int id = 0; id < kThreads; ++id) {
      threads.emplace_back([&, id] {
        Rounds(*w, shared, id, exchange);
        // And the other engine at the same time.
        Exchange own;
        Rounds(id % 2 == 0 ? one : two, (id % 2 == 0 ? one : two).Vector({3, 4}), id, own);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_GE(one.Count(Counter::kCutNodes), 1);
}

TEST(Threads, MayReleaseTheLastTensorAfterTheEngineIsClosed) {
  std::vector<std::thread> threads;
  for (int round = 0; round < 5; ++round) {
    World w({}, test::NewCpuBackend({.threads = 2}).value());
    T x = w.F32({256, 256}, std::vector<float>(256 * 256, 0.5f));
    T y = w.Op("matmul", {x, x});
    EXPECT_TRUE(w.engine->Sync().ok());
    EXPECT_TRUE(w.engine->Close().ok());
    threads.emplace_back([y = std::move(y)]() mutable { y = nullptr; });
    threads.emplace_back([x = std::move(x)]() mutable { x = nullptr; });
  }
  for (std::thread& thread : threads) thread.join();
}

// The launch is the last to hold the memory, and the next one is waited for under the engine's lock.
TEST(Threads, ThatAreOursNeverRunWhatTheOwnerOfForeignMemoryWantsToDo) {
  World w({}, test::NewCpuBackend({.threads = 2}).value());
  std::vector<float> data(256 * 256, 0.01f);
  const std::thread::id here = std::this_thread::get_id();
  int released = 0;
  for (int round = 1; round <= 4; ++round) {
    T x = w.engine->Adopt(nullptr, DType::kF32, Dims{256, 256}, data.data(), [&] {
      EXPECT_EQ(std::this_thread::get_id(), here);
      EXPECT_THAT(w.Read(w.Op("add", {w.Number(1), w.Number(2)})), ElementsAre(3));
      ++released;
    }).value();
    T y = x;
    for (int i = 0; i < 30; ++i) y = w.Op("matmul", {y, x});
    x = nullptr;
    EXPECT_TRUE(w.engine->Sync().ok());
    T other = w.Vector({1, 2});
    for (int i = 0; i < round; ++i) other = w.Op("exp", {other});  // a program not seen before
    EXPECT_TRUE(w.engine->Sync().ok());
  }
  EXPECT_TRUE(w.engine->Wait().ok());
  EXPECT_EQ(released, 4);
}

TEST(Threads, SeeOneOrderOfRandomNumbers) {
  auto draws = [](int threads) {
    World w({}, test::NewCpuBackend({.threads = 2}).value());
    T x = w.Vector(std::vector<float>(32, 1.0f));
    std::mutex mutex;
    std::vector<std::vector<float>> all;
    std::vector<std::thread> running;
    for (int id = 0; id < threads; ++id) {
      running.emplace_back([&] {
        for (int i = 0; i < 24 / threads; ++i) {
          std::vector<float> values = w.Read(w.Op("dropout", {x}));
          std::lock_guard lock(mutex);
          all.push_back(std::move(values));
        }
      });
    }
    for (std::thread& thread : running) thread.join();
    std::sort(all.begin(), all.end());
    return all;
  };
  EXPECT_EQ(draws(4), draws(1));  // the same draws, whoever got which
}

}  // namespace
}  // namespace weft::lazy
