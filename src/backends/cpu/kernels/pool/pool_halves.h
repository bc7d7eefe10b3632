// One pixel of pooling over bf16 or f16, one set of loops per instruction set.
#pragma once

#include <cstdint>

#include "src/backends/cpu/kernels/kernels.h"
#include "src/runtime/dtype.h"

namespace weft::cpu {

struct HalvesWindow {
  DType dtype = DType::kBF16;
  PoolKind kind = PoolKind::kMax;
  const uint16_t* x = nullptr;
  const int64_t* offsets = nullptr;  // per tap, at least one
  int64_t taps = 0, channels = 0;
  float scale = 1;
  uint16_t* y = nullptr;
};

// Does whole vectors of the channels and returns how many channels those are.
int64_t PoolHalvesAvx2(const HalvesWindow& window);
int64_t PoolHalvesAvx512(const HalvesWindow& window);

}  // namespace weft::cpu
