// Static offsets in one arena.
#include <algorithm>
#include <cmath>

#include "absl/container/btree_set.h"
#include "src/backends/cpu/lower/lowering.h"

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
  // Whole in the containers: a scan reads memory in order.
  struct Spot {
    int64_t offset, end;
    int first, last;
    bool operator<(const Spot& other) const { return offset < other.offset; }
  };

  explicit Placed(int entries)
      : stride_(std::max(64, 2 * static_cast<int>(std::sqrt(entries)))),
        windows_(static_cast<size_t>(entries / stride_) + 1) {}

  void Add(const Spot& spot) {
    all_.insert(spot);
    // Window w reaches two strides from w * stride_, so that every life of at most one stride lies in the one where it begins.
    for (int w = std::max(0, spot.first / stride_ - 1); w <= spot.last / stride_; ++w) {
      std::vector<Spot>& window = windows_[w];
      window.insert(std::upper_bound(window.begin(), window.end(), spot), spot);
    }
  }
  // Calls `visit` with everything that lives at the same time, by offset.
  template <typename Visit>
  void Contemporaries(const Lifetime& one, Visit visit) const {
    const auto look = [&](const Spot& spot) {
      if (spot.last >= one.first && one.last >= spot.first) visit(spot);
    };
    if (one.last - one.first <= stride_) {
      for (const Spot& spot : windows_[one.first / stride_]) look(spot);
    } else {
      for (const Spot& spot : all_) look(spot);
    }
  }

 private:
  const int stride_;
  absl::btree_multiset<Spot> all_;
  std::vector<std::vector<Spot>> windows_;
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
  Placed placed(entries);
  for (size_t i : order) {
    Lifetime& one = lifetimes[i];
    const int64_t size = Padded(one.bytes);
    int64_t at = 0, best = -1, best_gap = 0;
    placed.Contemporaries(one, [&](const Placed::Spot& other) {
      const int64_t gap = other.offset - at;
      if (gap >= size && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, other.end);
    });
    one.offset = best >= 0 ? best : at;
    total = std::max(total, one.offset + size);
    if (total > kTooLarge) return total;  // a launch finds no such memory and says so
    placed.Add({one.offset, one.offset + size, one.first, one.last});
  }
  return total;
}

}  // namespace weft::cpu
