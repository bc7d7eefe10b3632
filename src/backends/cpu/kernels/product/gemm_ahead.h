// Prefetches for a matrix product: tiles ask, a line of a cache with each step, for operands that are packed or read in
// place after them, from memory where rows are further apart than they are long, which no processor follows by itself.
// (Of many requests at once it drops most.)
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/backends/cpu/kernels/tiles/micro.h"

namespace weft::cpu {

class NextReads {
 public:
  // Adds rows that are `stride` bytes apart and `bytes` long.
  void Add(const char* at, int64_t rows, int64_t stride, int64_t bytes) {
    const int64_t before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) % kLine);
    parts_[count_++] = {reinterpret_cast<uintptr_t>(at) - static_cast<uintptr_t>(before), rows, stride, bytes + before};
  }

  // The tile prefetches one line of as many rows as it has steps. With fewer rows it goes on behind them.
  void Ask(MicroArgs* args) {
    args->ahead = nullptr;
    args->ahead_step = 0;
    while (part_ < count_ && asked_ >= parts_[part_].bytes) {
      ++part_;
      asked_ = row_ = 0;
    }
    if (part_ == count_) return;
    const Part& part = parts_[part_];
    const int64_t row = std::max<int64_t>(0, std::min(row_, part.rows - args->k));
    args->ahead = reinterpret_cast<const void*>(part.at + static_cast<uintptr_t>(row * part.stride + asked_));
    args->ahead_step = part.stride;
    row_ += args->k;
    if (row_ < part.rows) return;
    row_ = 0;
    asked_ += kLine;
  }

 private:
  struct Part {
    uintptr_t at = 0;  // of a line
    int64_t rows = 0, stride = 0, bytes = 0;
  };
  Part parts_[2];
  int count_ = 0, part_ = 0;
  int64_t asked_ = 0, row_ = 0;  // bytes of each row; the next row
};

// The operands that are read after the running tiles, which prefetch them.
struct Coming {
  const char* panels = nullptr;  // of a packed operand
  NextReads reads;               // to be packed, or in place
};

}  // namespace weft::cpu
