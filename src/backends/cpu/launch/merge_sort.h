// Stable sorting of positions: merges, and digit by digit where there are keys. In memory that the caller brings.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/runtime/launch_look.h"

namespace weft::cpu {

// A position and what it is sorted by.
template <typename T>
struct Keyed {
  T key, index;
};

// Items between two looks whether the launch ends. Then nobody may look at what lies in the memory: positions may be anything.
constexpr int64_t kSortedAtOnce = 1 << 14;

// Calls piece(first, last) on pieces of [begin, end) in turn, until the launch ends.
template <typename Piece>
void InPieces(int64_t begin, int64_t end, Piece&& piece) {
  for (; begin < end; begin += kSortedAtOnce) {
    if (LaunchEnds()) return;
    piece(begin, std::min(begin + kSortedAtOnce, end));
  }
}

// Copies from[begin, end) to to[begin, end).
template <typename Item>
void CopyItems(const Item* from, Item* to, int64_t begin, int64_t end) {
  const auto copy = [&](int64_t first, int64_t last) { std::copy(from + first, from + last, to + first); };
  end - begin <= kSortedAtOnce ? copy(begin, end) : InPieces(begin, end, copy);  // a look costs as much as some items
}

// Rows of `from` [begin, middle) and [middle, end) as one of `to`; of equals the left one first.
template <typename Item, typename Less>
void MergeRuns(const Item* from, Item* to, int64_t begin, int64_t middle, int64_t end, Less&& less) {
  int64_t left = begin, right = middle, at = begin;
  while (left < middle && right < end) {
    const int64_t steps = std::min({middle - left, end - right, kSortedAtOnce});
    if (steps == kSortedAtOnce && LaunchEnds()) return;
    // A step takes one of either.
    for (int64_t k = 0; k < steps; ++k) to[at++] = less(from[right], from[left]) ? from[right++] : from[left++];
  }
  CopyItems(from, to + (right - middle), left, middle);
  CopyItems(from, to, right, end);
}

// Sorts items[0, n); `other` has room for as many. Where they lie then, unless the launch ends.
template <typename Item, typename Less>
Item* MergeSort(Item* items, Item* other, int64_t n, Less&& less) {
  constexpr int64_t kRun = 8;
  PieceLook look(1000);
  for (int64_t begin = 0; begin < n; begin += kRun) {
    if (look.Ends()) return items;
    const int64_t end = std::min(begin + kRun, n);
    for (int64_t i = begin + 1; i < end; ++i) {
      const Item item = items[i];
      int64_t to = i;
      for (; to > begin && less(item, items[to - 1]); --to) items[to] = items[to - 1];
      items[to] = item;
    }
  }
  for (int64_t width = kRun; width < n; width *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * width) {
      if (look.Ends() || (2 * width >= kSortedAtOnce && LaunchEnds())) return items;
      MergeRuns(items, other, begin, std::min(begin + width, n), std::min(begin + 2 * width, n), less);
    }
    std::swap(items, other);
  }
  return items;
}

// The same by keys of `bytes` bytes, from the lowest to the highest; bytes that all keys share cost nothing.
template <typename T>
Keyed<T>* RadixSort(Keyed<T>* items, Keyed<T>* other, int64_t n, int bytes) {
  int64_t counts[sizeof(T)][256] = {};
  InPieces(0, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int d = 0; d < bytes; ++d) ++counts[d][items[i].key >> (8 * d) & 255];
    }
  });
  for (int d = 0; d < bytes; ++d) {
    if (n > 0 && counts[d][items[0].key >> (8 * d) & 255] == n) continue;
    int64_t begin[256], sum = 0;
    for (int b = 0; b < 256; ++b) {
      begin[b] = sum;
      sum += counts[d][b];
    }
    InPieces(0, n, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) other[begin[items[i].key >> (8 * d) & 255]++] = items[i];
    });
    if (LaunchEnds()) return items;
    std::swap(items, other);
  }
  return items;
}

}  // namespace weft::cpu
