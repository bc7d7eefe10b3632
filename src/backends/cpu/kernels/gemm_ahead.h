// What a matrix product's tiles ask for as they run: what is packed or read in place after them, from memory where rows are further
// apart than they are long, which no processor follows by itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/backends/cpu/kernels/micro.h"

namespace weft::cpu {

// Rows of memory that are packed when the tiles that run now are through: they ask for one with every tap, into which their steps
// are cut for that. (Packing would have to wait for each line; and of many requests at once the processor drops most.)
struct RowsAhead {
  static constexpr int64_t kMostTaps = 16;

  uintptr_t first = 0;  // of a line of cache
  int64_t rows = 0, stride = 0, lines = 0;

  // Cuts the steps of tiles that are called `calls` times. Whether that can be done; b_offsets and a[tap] are the caller's.
  bool CutSteps(int64_t calls, MicroArgs* args) const {
    if (rows == 0 || args->odd != 0) return false;
    int64_t taps = (rows + calls - 1) / calls;
    while (taps <= kMostTaps && args->k % taps != 0) ++taps;
    if (taps > std::min(kMostTaps, args->k)) return false;
    args->taps = taps;
    args->k /= taps;
    args->ahead_step = (lines - 1) * kLine / std::max<int64_t>(1, args->k - 1) + 1;
    args->ahead_tap = stride;
    return true;
  }
  void Ask(int64_t call, MicroArgs* args) const {
    const int64_t row = std::max<int64_t>(0, std::min(call * args->taps, rows - args->taps));
    args->ahead = reinterpret_cast<const void*>(first + static_cast<uintptr_t>(row * stride));
  }
};

// What the next block reads of both operands: tiles ask for it as they run, a line of a cache with each step. Rows of memory that
// are further apart than they are long are followed by no prefetcher of a processor.
class NextReads {
 public:
  // So many rows, `stride` bytes apart, of so many bytes each.
  void Add(const char* at, int64_t rows, int64_t stride, int64_t bytes) {
    parts_[count_++] = {at, rows, stride, bytes};
  }
  void Ask(MicroArgs* args) {
    while (part_ < count_ && (asked_ >= parts_[part_].bytes || args->k > parts_[part_].rows)) {
      ++part_;
      asked_ = 0;
    }
    args->ahead = part_ < count_ ? parts_[part_].at + asked_ : nullptr;
    args->ahead_step = part_ < count_ ? parts_[part_].stride : 0;
    asked_ += kLine;
  }

 private:
  struct Part {
    const char* at = nullptr;
    int64_t rows = 0, stride = 0, bytes = 0;
  };
  Part parts_[2];
  int count_ = 0, part_ = 0;
  int64_t asked_ = 0;  // of each row
};

// What is read after the tiles that run, and asked for by them.
struct Coming {
  const char* panels = nullptr;  // of a packed operand
  RowsAhead unpacked;            // of one that is packed next
  NextReads reads;               // where both operands are read in place
};

}  // namespace weft::cpu
