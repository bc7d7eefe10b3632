// Summaries of samples.
#include "src/runtime/samples.h"

#include <algorithm>
#include <vector>

namespace weft {

SampleSummary Samples::Summarize() const {
  SampleSummary summary;
  summary.count = count_.load(std::memory_order_relaxed);
  summary.sum = sum_.load(std::memory_order_relaxed);
  std::vector<int64_t> sorted(std::min(static_cast<size_t>(summary.count), kKept));
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = kept_[i].load(std::memory_order_relaxed);
  std::ranges::sort(sorted);
  if (sorted.empty()) return summary;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    const size_t rank =
        (sorted.size() * static_cast<size_t>(kPercentiles[i]) + 99) / 100;  // 1 to the number of samples
    summary.percentiles[i] = sorted[rank - 1];
  }
  return summary;
}

void Samples::Clear() {
  count_.store(0, std::memory_order_relaxed);
  sum_.store(0, std::memory_order_relaxed);
}

}  // namespace weft
