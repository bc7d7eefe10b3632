// Block loops that are a kernel's Ending (kernels/kernels.h), operation by operation: tiles can do them then.
#pragma once

#include <cstdint>
#include <limits>

#include "src/backends/cpu/loop/loop.h"

namespace weft::cpu {

// Positions among the loop's buffers.
struct LoopEnding {
  int32_t factor = -1, summand = -1, to = -1;
  int32_t added = -1;  // none
  float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
};

// Tells whether `kernel`, which ToBlockLoop has made, is an epilogue of the buffer `product` that tiles do in
// registers, and which one; f32 and bf16 alone.
bool ToEnding(const LoopKernel& kernel, uint32_t product, LoopEnding* ending);

}  // namespace weft::cpu
