// Loaders without an engine: threads, ends, moves and errors at any time. ThreadSanitizer's preset runs this, too.
#include "src/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

namespace weft::data {
namespace {

using ::testing::HasSubstr;

// Item i is the number i. Reads that begin with a multiple of `slow` take a millisecond longer, those with `bad` fail.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t count, int64_t slow = 0, int64_t bad = -1, int64_t most = 0)
      : Dataset(count, {*MakeField("n", DType::kI64, {})}, most), slow_(slow), bad_(bad) {}

  absl::Status Read(std::span<const int64_t> items, std::span<std::byte* const> into, std::span<uint64_t>) override {
    const int now = ++at_once_;
    for (int seen = most_seen; now > seen && !most_seen.compare_exchange_weak(seen, now);) continue;
    if (slow_ != 0 && items[0] % slow_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::memcpy(into[0], items.data(), items.size_bytes());
    --at_once_;
    for (const int64_t item : items) {
      if (item == bad_) return absl::DataLossError("gone");
    }
    return absl::OkStatus();
  }
  std::atomic<int> most_seen{0};

 private:
  const int64_t slow_, bad_;
  std::atomic<int> at_once_{0};
};

struct Made {
  std::vector<int64_t> numbers;
};
absl::StatusOr<std::shared_ptr<void>> ToNumbers(HostBatch batch) {
  auto made = std::make_shared<Made>();
  made->numbers.resize(batch.batch.items.size());
  std::memcpy(made->numbers.data(), batch.blocks[0].get(), made->numbers.size() * sizeof(int64_t));
  return made;
}

std::unique_ptr<Loader> MadeFor(Ref<Dataset> dataset, LoaderOptions options, const std::shared_ptr<Metrics>& metrics) {
  const int64_t count = dataset->count();
  // Threads that are about to end may still count.
  const auto finish = [metrics](HostBatch batch) { return ToNumbers(std::move(batch)); };
  return *Loader::Create(std::move(dataset), *Sampler::Create({.items = count, .order = Order::kRandom, .batch = 4}), options,
                         finish, metrics.get());
}
absl::Status Never() { return absl::OkStatus(); }

TEST(Loader, GivesTheSamplersOrderWithAnyNumberOfThreads) {
  const auto metrics = std::make_shared<Metrics>();
  std::vector<std::vector<int64_t>> wanted;
  for (const int64_t threads : {1, 2, 5}) {
    const auto loader = MadeFor(Ref<Dataset>(new Numbers(64, 3)), {.depth = 5, .threads = threads}, metrics);
    std::vector<std::vector<int64_t>> got;
    for (int epoch = 0; epoch < 3; ++epoch) {
      while (const std::shared_ptr<void> made = *loader->Next(Never)) got.push_back(static_cast<Made*>(made.get())->numbers);
    }
    EXPECT_EQ(got.size(), 48u);
    if (wanted.empty()) wanted = got;
    EXPECT_EQ(got, wanted) << threads;
  }
  EXPECT_EQ(metrics->Get(Counter::kLoaderBatches), 3 * 48);
}

TEST(Loader, KeepsToTheThreadsThatTheDataSetAllows) {
  const auto metrics = std::make_shared<Metrics>();
  auto* const numbers = new Numbers(64, 1, -1, 1);
  const Ref<Dataset> keep(numbers);
  const auto loader = MadeFor(keep, {.depth = 6, .threads = 6}, metrics);
  while (*loader->Next(Never)) continue;
  EXPECT_EQ(numbers->most_seen, 1);
}

TEST(Loader, MovesAndEndsAtAnyTime) {
  const auto metrics = std::make_shared<Metrics>();
  for (int round = 0; round < 60; ++round) {
    const auto loader = MadeFor(Ref<Dataset>(new Numbers(40, 2)), {.depth = 1 + round % 4}, metrics);
    std::vector<int64_t> order;
    for (int i = 0; i < 10; ++i) {
      const std::shared_ptr<void> made = *loader->Next(Never);
      for (const int64_t n : static_cast<Made*>(made.get())->numbers) order.push_back(n);
    }
    for (const int64_t position : {12, 0, 37, 20}) {
      ASSERT_TRUE(loader->MoveTo({0, 0, position}).ok());
      const std::shared_ptr<void> made = *loader->Next(Never);
      if (position == 37) {
        EXPECT_EQ(made, nullptr);  // 3 items are no batch
        continue;
      }
      EXPECT_TRUE(std::equal(order.begin() + position, order.begin() + position + 4, static_cast<Made*>(made.get())->numbers.begin()));
      EXPECT_EQ(loader->place().position, position + 4);
    }
  }
}

TEST(Loader, AnErrorComesInItsTurnAndTheBatchAgain) {
  const auto metrics = std::make_shared<Metrics>();
  const auto loader = MadeFor(Ref<Dataset>(new Numbers(40, 0, 17)), {.depth = 4}, metrics);
  int failures = 0, batches = 0;
  for (int i = 0; i < 14; ++i) {
    const absl::StatusOr<std::shared_ptr<void>> made = loader->Next(Never);
    batches += made.ok();
    if (made.ok()) continue;
    EXPECT_THAT(made.status().message(), HasSubstr("reading item 17: gone (epoch 0, position "));
    ++failures;
  }
  EXPECT_GT(failures, 1);
  EXPECT_EQ(batches + failures, 14);
}

TEST(Loader, ALookEndsTheWait) {
  const auto metrics = std::make_shared<Metrics>();
  const auto loader = MadeFor(Ref<Dataset>(new Numbers(40)), {}, metrics);
  const auto stop = [] { return absl::CancelledError("enough"); };
  const absl::StatusOr<std::shared_ptr<void>> made = loader->Next(stop);
  EXPECT_TRUE(made.ok() || made.status().message() == "enough");
  EXPECT_TRUE(loader->Next(Never).ok());
}

TEST(Blocks, ComeBackAndShowWhoWroteTooFar) {
  Block first;
  {
    BlockPool pool(1 << 20);
    first = *pool.Take(100);
    std::byte* const memory = first.get();
    EXPECT_TRUE(BlockPool::GuardIsWhole(first, 100));
    first.get()[100] = std::byte{0};
    EXPECT_FALSE(BlockPool::GuardIsWhole(first, 100));
    first.reset();
    first = *pool.Take(100);
    EXPECT_EQ(first.get(), memory);
    EXPECT_TRUE(BlockPool::GuardIsWhole(first, 100));
  }
  first.reset();  // after the pool
}

}  // namespace
}  // namespace weft::data
