// Summaries of samples.
#include "src/runtime/samples.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace weft {

SampleSummary Samples::Summarize() const {
  SampleSummary summary;
  for (size_t i = 0; i < kBuckets; ++i) {
    summary.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    summary.count += summary.buckets[i];
  }
  summary.sum = sum_.load(std::memory_order_relaxed);
  std::vector<int64_t>& sorted = summary.newest;
  sorted.resize(std::min<size_t>(next_.load(std::memory_order_relaxed), kKept));
  if (sorted.empty()) return summary;
  summary.least = least_.load(std::memory_order_relaxed), summary.largest = largest_.load(std::memory_order_relaxed);
  summary.first_time = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < sorted.size(); ++i) {
    sorted[i] = kept_[i].load(std::memory_order_relaxed);
    const int64_t time = times_[i].load(std::memory_order_relaxed);
    summary.first_time = std::min(summary.first_time, time), summary.last_time = std::max(summary.last_time, time);
  }
  std::ranges::sort(sorted);
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    const size_t rank =
        (sorted.size() * static_cast<size_t>(kPercentiles[i]) + 99) / 100;  // 1 to the number of samples
    summary.percentiles[i] = sorted[rank - 1];
  }
  return summary;
}

void Samples::Clear() {
  next_.store(0, std::memory_order_relaxed);
  sum_.store(0, std::memory_order_relaxed);
  for (std::atomic<int64_t>& bucket : buckets_) bucket.store(0, std::memory_order_relaxed);
  least_.store(std::numeric_limits<int64_t>::max(), std::memory_order_relaxed);
  largest_.store(std::numeric_limits<int64_t>::min(), std::memory_order_relaxed);
}

}  // namespace weft
