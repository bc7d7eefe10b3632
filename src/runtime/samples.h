// A quantity that is measured again and again: how often, the sum, and percentiles of the newest measurements.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace weft {

// The percentiles of a summary, as PyTorch/XLA's metrics report has them.
inline constexpr std::array<int, 9> kPercentiles = {1, 5, 10, 20, 50, 80, 90, 95, 99};

struct SampleSummary {
  int64_t count = 0;
  int64_t sum = 0;
  std::array<int64_t, kPercentiles.size()>
      percentiles{};  // nearest rank, of the newest Samples::kKept; 0 without samples
};

// Thread rule: any thread. Adding takes no lock and no memory; a summary that is made meanwhile may miss the newest values.
class Samples {
 public:
  static constexpr size_t kKept = 1024;

  void Add(int64_t value) {
    const auto at = static_cast<uint64_t>(count_.fetch_add(1, std::memory_order_relaxed));
    sum_.fetch_add(value, std::memory_order_relaxed);
    kept_[at % kKept].store(value, std::memory_order_relaxed);
  }
  SampleSummary Summarize() const;
  void Clear();

 private:
  std::atomic<int64_t> count_{0}, sum_{0};
  std::array<std::atomic<int64_t>, kKept> kept_{};
};

}  // namespace weft
