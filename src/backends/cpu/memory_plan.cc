// Static offsets in one arena.
#include <algorithm>
#include <cmath>

#include "absl/container/btree_set.h"
#include "src/backends/cpu/lowering.h"

namespace weft::cpu {
namespace {

constexpr int64_t kTooLarge = int64_t{1} << 60;  // no machine has it; sums below never overflow

// 64 bytes behind every storage may be read by whole vectors; an extra 64 when the size is a multiple of 4 KiB keeps
// storages that are walked together out of one another's cache sets.
int64_t Padded(int64_t bytes) {
  const int64_t rounded = (bytes + 63) / 64 * 64 + 64;
  return (rounded - 64) % 4096 == 0 ? rounded + 64 : rounded;
}

// What has been placed, by offset: all of it, and that of each stretch of time, so that a short life is compared with its
// contemporaries only (n to the power 1.5 instead of n squared: a million kernels take a second).
class Placed {
 public:
  Placed(const std::vector<Lifetime>& lifetimes, int entries)
      : lifetimes_(lifetimes),
        stride_(std::max(64, 2 * static_cast<int>(std::sqrt(entries)))),
        windows_(static_cast<size_t>(entries / stride_) + 1) {}

  void Add(size_t i) {
    const Lifetime& one = lifetimes_[i];
    all_.insert({one.offset, i});
    // Window w reaches two strides from w * stride_, so that every life of at most one stride lies in the one where it begins.
    for (int w = std::max(0, one.first / stride_ - 1); w <= one.last / stride_; ++w) {
      std::vector<size_t>& window = windows_[w];
      window.insert(std::upper_bound(window.begin(), window.end(), i,
                                     [&](size_t a, size_t b) { return lifetimes_[a].offset < lifetimes_[b].offset; }),
                    i);
    }
  }
  // Calls `visit` with everything that lives at the same time, by offset.
  template <typename Visit>
  void Contemporaries(const Lifetime& one, Visit visit) const {
    const auto look = [&](size_t p) {
      const Lifetime& other = lifetimes_[p];
      if (other.last >= one.first && one.last >= other.first) visit(other);
    };
    if (one.last - one.first <= stride_) {
      for (size_t p : windows_[one.first / stride_]) look(p);
    } else {
      for (const auto& [offset, p] : all_) look(p);
    }
  }

 private:
  const std::vector<Lifetime>& lifetimes_;
  const int stride_;
  absl::btree_set<std::pair<int64_t, size_t>> all_;
  std::vector<std::vector<size_t>> windows_;
};

}  // namespace

// Best fit by decreasing size.
int64_t PlanArena(std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order;
  int entries = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    order.push_back(i);
    entries = std::max(entries, lifetimes[i].last + 1);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  int64_t total = 0;
  Placed placed(lifetimes, entries);
  for (size_t i : order) {
    Lifetime& one = lifetimes[i];
    const int64_t size = Padded(one.bytes);
    int64_t at = 0, best = -1, best_gap = 0;
    placed.Contemporaries(one, [&](const Lifetime& other) {
      const int64_t gap = other.offset - at;
      if (gap >= size && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, other.offset + Padded(other.bytes));
    });
    one.offset = best >= 0 ? best : at;
    total = std::max(total, one.offset + size);
    if (total > kTooLarge) return total;  // a launch finds no such memory and says so
    placed.Add(i);
  }
  return total;
}

}  // namespace weft::cpu
