// Orders of epochs: permutations are permutations, batches are a function of where a run stands, whoever asks.
#include "src/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "src/data/permutation.h"

namespace weft::data {
namespace {

using ::testing::HasSubstr;

Ref<Sampler> Made(SamplerSpec spec) {
  absl::StatusOr<Ref<Sampler>> made = Sampler::Create(std::move(spec));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}
std::string Refused(SamplerSpec spec) {
  const absl::StatusOr<Ref<Sampler>> made = Sampler::Create(std::move(spec));
  return made.ok() ? "made" : std::string(made.status().message());
}
Batch At(const Sampler& sampler, int64_t position, int64_t epoch = 0) {
  Batch batch;
  const absl::Status status = sampler.BatchAt({sampler.spec().seed, epoch, position}, &batch);
  EXPECT_TRUE(status.ok()) << status;
  return batch;
}
// All items that count, of all ranks, from one position to the end of the epoch.
std::vector<int64_t> Rest(SamplerSpec spec, int64_t ranks, int64_t position) {
  std::vector<int64_t> items;
  for (spec.ranks = ranks; true;) {
    int64_t next = position;
    for (spec.rank = 0; spec.rank < ranks; ++spec.rank) {
      const Ref<Sampler> sampler = Made(spec);
      if (sampler->BatchesFrom(position) == 0) return items;
      const Batch batch = At(*sampler, position);
      items.insert(items.end(), batch.items.begin(), batch.items.begin() + batch.kept);
      next = batch.next.position;
    }
    position = next;
  }
}

TEST(Permutation, OfEveryCountHoldsEachPlaceOnce) {
  for (uint64_t count : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 100, 255, 256, 257, 1000, 65535, 65536, 65537, 1000000}) {
    const Permutation permutation(count, 7, count);
    std::vector<bool> seen(count);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t image = permutation.At(i);
      ASSERT_LT(image, count);
      ASSERT_FALSE(seen[image]) << image << " of " << count;
      seen[image] = true;
    }
  }
}

TEST(Permutation, OfFourGivesAllTwentyFourOrdersEquallyOften) {
  std::map<std::vector<uint64_t>, int> orders;
  constexpr int kDraws = 24000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const Permutation permutation(4, seed, 0);
    ++orders[{permutation.At(0), permutation.At(1), permutation.At(2), permutation.At(3)}];
  }
  ASSERT_EQ(orders.size(), 24u);
  double chi2 = 0;
  for (const auto& [order, count] : orders) chi2 += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 60) << "23 degrees of freedom: 0.004 % of fair ones are above 56";
}

TEST(Permutation, MixesNeighboursAndDiffersByEpoch) {
  constexpr uint64_t kCount = 60000;
  const Permutation first(kCount, 1, 0), second(kCount, 1, 1);
  uint64_t equal = 0, neighbours = 0;
  double sum = 0;
  for (uint64_t i = 0; i + 1 < kCount; ++i) {
    const uint64_t a = first.At(i), b = first.At(i + 1);
    equal += a == second.At(i);
    neighbours += a + 1 == b;
    sum += static_cast<double>(a > b ? a - b : b - a);
  }
  EXPECT_LT(equal, 10u);       // 1 is expected
  EXPECT_LT(neighbours, 10u);  // 1 is expected
  EXPECT_NEAR(sum / kCount, kCount / 3.0, kCount / 100.0);
}

TEST(Sampler, TakesTheNextItemsRankAfterRank) {
  const Ref<Sampler> one = Made({.items = 12, .batch = 4}), second = Made({.items = 12, .batch = 2, .rank = 1, .ranks = 2});
  EXPECT_EQ(At(*one, 4).items, (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(At(*second, 4).items, (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(At(*second, 4).next.position, 8);
  EXPECT_EQ(second->BatchesFrom(0), 3);
}

TEST(Sampler, DropsOrPadsTheTailAlikeForAllRanks) {
  SamplerSpec spec = {.items = 10, .batch = 3, .ranks = 2};
  EXPECT_EQ(Made(spec)->BatchesFrom(0), 1);
  spec.tail = Tail::kPad;
  EXPECT_EQ(Made(spec)->BatchesFrom(0), 2);
  EXPECT_EQ(At(*Made(spec), 6).kept, 3);
  spec.rank = 1;
  EXPECT_EQ(At(*Made(spec), 6).kept, 1);
  EXPECT_EQ(At(*Made(spec), 6).items, (std::vector<int64_t>{9, 0, 1}));
  EXPECT_EQ(At(*Made(spec), 6).next.position, 10);
}

TEST(Sampler, AMillionItemsComeOnceEachWhereverARunGoesOn) {
  SamplerSpec spec = {.items = 1'000'000, .order = Order::kRandom, .tail = Tail::kPad, .seed = 3, .batch = 999};
  const Ref<Sampler> sampler = Made(spec);
  std::vector<bool> seen(1'000'000);
  std::vector<int64_t> order;
  for (int64_t position = 0; sampler->BatchesFrom(position) > 0;) {
    const Batch batch = At(*sampler, position);
    for (int64_t i = 0; i < batch.kept; ++i) {
      ASSERT_FALSE(seen[static_cast<size_t>(batch.items[static_cast<size_t>(i)])]);
      seen[static_cast<size_t>(batch.items[static_cast<size_t>(i)])] = true;
    }
    order.insert(order.end(), batch.items.begin(), batch.items.begin() + batch.kept);
    position = batch.next.position;
  }
  EXPECT_EQ(order.size(), 1'000'000u);
  for (const int64_t position : {0, 1, 998, 4711, 500'000, 999'998}) {
    const Batch batch = At(*Made(spec), position);  // another sampler, at any position
    EXPECT_TRUE(std::equal(batch.items.begin(), batch.items.begin() + batch.kept, order.begin() + position));
  }
}

TEST(Sampler, FourRanksBecomeTwoOrEightAtTheSamePosition) {
  SamplerSpec spec = {.items = 1003, .order = Order::kRandom, .tail = Tail::kPad, .seed = 9, .batch = 5};
  const std::vector<int64_t> whole = Rest(spec, 4, 0);
  ASSERT_EQ(std::set<int64_t>(whole.begin(), whole.end()).size(), 1003u);
  ASSERT_EQ(whole.size(), 1003u);
  for (const int64_t position : {0, 20, 440, 1000}) {  // where four ranks may stop
    const std::vector<int64_t> left(whole.begin() + position, whole.end());
    EXPECT_EQ(Rest(spec, 2, position), left);
    EXPECT_EQ(Rest(spec, 8, position), left);
  }
}

TEST(Sampler, WeightsSayHowOftenItemsCome) {
  SamplerSpec spec = {.items = 4, .order = Order::kWeighted, .seed = 5, .batch = 100, .weights = {1, 0, 3, 4}, .draws = 80'000};
  const Ref<Sampler> sampler = Made(spec);
  std::map<int64_t, int> counts;
  for (int64_t position = 0; sampler->BatchesFrom(position) > 0; position += 100) {
    for (const int64_t item : At(*sampler, position).items) ++counts[item];
  }
  EXPECT_EQ(counts.count(1), 0u);
  EXPECT_NEAR(counts[0], 10'000, 500);
  EXPECT_NEAR(counts[2], 30'000, 700);
  EXPECT_NEAR(counts[3], 40'000, 700);
}

TEST(Sampler, SaysWhatIsWrong) {
  EXPECT_EQ(Refused({.items = 0}), "a sampler needs items; there are 0");
  EXPECT_THAT(Refused({.items = 4, .batch = 0}), HasSubstr("batch is 0; it is from 1 to"));
  EXPECT_THAT(Refused({.items = 4, .rank = 2, .ranks = 2}), HasSubstr("rank is 2; with 2 ranks it is from 0 to 1"));
  EXPECT_THAT(Refused({.items = 4, .batch = 5}), HasSubstr("an epoch of 4 items has no whole batch of 5 for 1 rank"));
  EXPECT_EQ(Refused({.items = 4, .tail = Tail::kPad, .batch = 5}), "made");
  EXPECT_THAT(Refused({.items = 2, .weights = {1, 2}}), HasSubstr("are for the weighted order"));
  EXPECT_THAT(Refused({.items = 2, .order = Order::kWeighted, .weights = {1}}), HasSubstr("1 weights for 2 items"));
  EXPECT_THAT(Refused({.items = 2, .order = Order::kWeighted, .weights = {1, NAN}}), HasSubstr("weight 1 is nan"));
  EXPECT_THAT(Refused({.items = 2, .order = Order::kWeighted, .weights = {-1, 1}}), HasSubstr("weight 0 is -1"));
  EXPECT_THAT(Refused({.items = 2, .order = Order::kWeighted, .weights = {0, 0}}), HasSubstr("all 2 weights are 0"));
  Batch batch;
  EXPECT_THAT(Made({.items = 4})->BatchAt({0, 0, 5}, &batch).message(), HasSubstr("position is 5"));
  EXPECT_THAT(Made({.items = 4})->BatchAt({0, -1, 0}, &batch).message(), HasSubstr("epoch is -1"));
  EXPECT_TRUE(absl::IsOutOfRange(Made({.items = 4})->BatchAt({0, 0, 4}, &batch)));
}

}  // namespace
}  // namespace weft::data
