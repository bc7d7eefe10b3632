// A quantity that is measured again and again: how often, the sum, and percentiles of the newest measurements.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

// The percentiles of a summary, as PyTorch/XLA's metrics report has them.
inline constexpr std::array<int, 9> kPercentiles = {1, 5, 10, 20, 50, 80, 90, 95, 99};

// The unit of a metric.
enum class Unit : uint8_t { kNumber, kNanoseconds, kBytes };

// The number of buckets of a histogram: bucket 0 has the values up to 1, bucket i those above 2^(i-1) and up to 2^i.
inline constexpr size_t kBuckets = 64;

struct SampleSummary {
  int64_t count = 0;
  int64_t sum = 0;
  int64_t least = 0, largest = 0;  // of all; 0 without samples
  // Percentiles of the newest Samples::kKept: nearest rank; 0 without samples. One that another thread added in the same
  // nanoseconds may be missing here, never in the rest.
  std::array<int64_t, kPercentiles.size()> percentiles{};
  std::vector<int64_t> newest;              // their values, sorted
  int64_t first_time = 0, last_time = 0;    // when the first and the last of them were measured, nanoseconds
  std::array<int64_t, kBuckets> buckets{};  // how many values each has, of all
};

// Thread rule: any thread. Adding takes no lock and no memory; a summary that is made meanwhile may miss the newest values.
class Samples {
 public:
  static constexpr size_t kKept = 1024;

  // `now`: when it was measured, in nanoseconds of a clock that only goes forward.
  void Add(int64_t value, int64_t now) {
    // Two atomic additions, since each takes 6 ns: the number of samples is that of all buckets, and of two threads that
    // take the same place in the ring one overwrites the other, which leaves count, sum and buckets as they are.
    const uint64_t at = next_.load(std::memory_order_relaxed);
    next_.store(at + 1, std::memory_order_relaxed);
    kept_[at % kKept].store(value, std::memory_order_relaxed);
    times_[at % kKept].store(now, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
    const auto above = static_cast<uint64_t>(std::max<int64_t>(value, 1) - 1);
    buckets_[static_cast<size_t>(std::bit_width(above))].fetch_add(1, std::memory_order_relaxed);
    Lower(least_, value, [](int64_t a, int64_t b) { return a < b; });
    Lower(largest_, value, [](int64_t a, int64_t b) { return a > b; });
  }
  SampleSummary Summarize() const;
  void Clear();

 private:
  template <typename Before>
  static void Lower(std::atomic<int64_t>& bound, int64_t value, Before before) {
    int64_t known = bound.load(std::memory_order_relaxed);
    while (before(value, known) && !bound.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
    }
  }

  std::atomic<uint64_t> next_{0};  // in the ring
  std::atomic<int64_t> sum_{0};
  std::atomic<int64_t> least_{std::numeric_limits<int64_t>::max()}, largest_{std::numeric_limits<int64_t>::min()};
  std::array<std::atomic<int64_t>, kBuckets> buckets_{};
  std::array<std::atomic<int64_t>, kKept> kept_{}, times_{};
};

}  // namespace weft
