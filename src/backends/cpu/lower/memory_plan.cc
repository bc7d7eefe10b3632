// Static offsets in one arena.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

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

struct Spot {
  int64_t offset, end;
  int first, last;
};

// Spots by offset, in blocks of a few. Where all of a block lives at the time in question and no gap in it is wide enough, it is
// one spot: the activations of a hundred layers, which all wait for the backward pass, are passed in a few steps.
class Shelf {
 public:
  void Add(const Spot& spot) {
    const auto at = std::prev(blocks_.upper_bound(spot.offset));
    Block& block = at->second;
    block.spots.insert(std::ranges::upper_bound(block.spots, spot.offset, {}, &Spot::offset), spot);
    block.Count(spot);
    if (block.spots.size() <= kMost) return;
    const std::span<const Spot> spots = block.spots;
    Block lower(spots.first(kMost / 2)), upper(spots.subspan(kMost / 2));
    block = std::move(lower);
    const int64_t offset = upper.begin;
    blocks_.emplace_hint(std::next(at), offset, std::move(upper));
  }
  // Calls `visit` with where everything lies that lives at the same time, by offset.
  template <typename Visit>
  void Contemporaries(const Lifetime& one, int64_t size, Visit visit) const {
    for (const auto& [offset, block] : blocks_) {
      if (block.last < one.first || one.last < block.first) continue;
      if (block.all_from <= one.last && one.first <= block.all_until && block.gap < size) {
        visit(block.begin, block.end);
        continue;
      }
      for (const Spot& spot : block.spots) {
        if (spot.last >= one.first && one.last >= spot.first) visit(spot.offset, spot.end);
      }
    }
  }

 private:
  static constexpr size_t kMost = 32;

  struct Block {
    Block() = default;
    explicit Block(std::span<const Spot> some) : spots(some.begin(), some.end()) {
      for (const Spot& spot : some) Count(spot);
    }
    void Count(const Spot& spot) {
      if (last >= 0) gap = std::max({gap, begin - spot.end, spot.offset - end});
      begin = std::min(begin, spot.offset);
      end = std::max(end, spot.end);
      first = std::min(first, spot.first);
      last = std::max(last, spot.last);
      all_from = std::max(all_from, spot.first);
      all_until = std::min(all_until, spot.last);
    }

    std::vector<Spot> spots;
    int64_t begin = INT64_MAX, end = 0;
    int64_t gap = 0;                         // no two neighbours are further apart
    int first = INT_MAX, last = -1;          // when something lives
    int all_from = -1, all_until = INT_MAX;  // when everything does
  };

  std::multimap<int64_t, Block> blocks_ = {{0, Block()}};  // by the least offset there may be
};

// The placed storages: all of them, and those of each stretch of time, so that a short life is compared with its
// contemporaries only (n to the power 1.5 instead of n squared: a million kernels take a second).
class Placed {
 public:
  explicit Placed(int entries)
      : stride_(std::max(64, 2 * static_cast<int>(std::sqrt(entries)))),
        windows_(static_cast<size_t>(entries / stride_) + 1) {}

  void Add(const Spot& spot) {
    all_.Add(spot);
    // Window w reaches two strides from w * stride_, so that every life of at most one stride lies in the one where it begins.
    for (int w = std::max(0, spot.first / stride_ - 1); w <= spot.last / stride_; ++w) windows_[w].Add(spot);
  }
  // Returns a set that holds everything that lives at the same time, and perhaps more.
  const Shelf& Around(const Lifetime& one) const {
    return one.last - one.first <= stride_ ? windows_[one.first / stride_] : all_;
  }

 private:
  const int stride_;
  Shelf all_;
  std::vector<Shelf> windows_;
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
    placed.Around(one).Contemporaries(one, size, [&](int64_t offset, int64_t end) {
      const int64_t gap = offset - at;
      if (gap >= size && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, end);
    });
    one.offset = best >= 0 ? best : at;
    total = std::max(total, one.offset + size);
    if (total > kTooLarge) return total;  // a launch finds no such memory and says so
    placed.Add({one.offset, one.offset + size, one.first, one.last});
  }
  return total;
}

}  // namespace weft::cpu
