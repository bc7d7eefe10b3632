// The per-pixel kernels of pooling, one pair per instruction set. pool2d.cc walks the pixels.
#pragma once

#include <cstdint>

#include "src/backends/cpu/kernels/kernels.h"

namespace weft::cpu {

constexpr int64_t kInlinePoolElements = 16'000;  // to read: fewer are one thread's

struct PoolPixel {
  PoolKind kind = PoolKind::kMax;
  const float* x = nullptr;          // the image
  const int64_t* offsets = nullptr;  // of the window's elements that exist, in window order
  int64_t taps = 0;                  // at least 1
  int64_t channels = 0;
  float scale = 1;
  float* y = nullptr;         // forward: this pixel; may be the first of the elements
  const float* dy = nullptr;  // backward: this pixel
  float* dx = nullptr;        // backward: the image
  bool overwrite = false;     // backward: no other window touches these elements
  bool nan_gives_way = false;
};

void PoolForwardPortable(const PoolPixel& pixel);
void PoolBackwardPortable(const PoolPixel& pixel);
void PoolForwardAvx512(const PoolPixel& pixel);
void PoolBackwardAvx512(const PoolPixel& pixel);

}  // namespace weft::cpu
