// Static offsets in one arena.
#include <algorithm>

#include "src/backends/cpu/lowering.h"

namespace weft::cpu {

// Best fit by decreasing size. 64 bytes behind every storage may be read by whole vectors; an extra 64 when the size is a
// multiple of 4 KiB keeps storages that are walked together out of one another's cache sets.
int64_t PlanArena(std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order;
  for (size_t i = 0; i < lifetimes.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  const auto padded = [](int64_t bytes) {
    const int64_t rounded = (bytes + 63) / 64 * 64 + 64;
    return (rounded - 64) % 4096 == 0 ? rounded + 64 : rounded;
  };
  int64_t total = 0;
  std::vector<size_t> placed;  // by offset
  for (size_t i : order) {
    Lifetime& one = lifetimes[i];
    const int64_t size = padded(one.bytes);
    int64_t at = 0, best = -1, best_gap = 0;
    for (size_t p : placed) {
      const Lifetime& other = lifetimes[p];
      if (other.last < one.first || one.last < other.first) continue;
      const int64_t gap = other.offset - at;
      if (gap >= size && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, other.offset + padded(other.bytes));
    }
    one.offset = best >= 0 ? best : at;
    total = std::max(total, one.offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return lifetimes[a].offset < lifetimes[b].offset; }), i);
  }
  return total;
}

}  // namespace weft::cpu
