// Rows of bf16 and f16 to f32 and back, one set of loops per instruction set.
#pragma once

#include <cstdint>

#include "src/backends/cpu/jit/isa.h"
#include "src/runtime/dtype.h"

namespace weft::cpu {

// Between f32 and bf16 or f16, as WidenBF16, NarrowBF16 … do, but for a NaN's payload.
struct HalvesKernels {
  void (*widen)(DType from, const uint16_t* in, int64_t count, float* out) = nullptr;
  void (*narrow)(DType to, const float* in, int64_t count, uint16_t* out) = nullptr;
};
extern const HalvesKernels kHalvesPortable, kHalvesAvx2, kHalvesAvx512;
// The loops for a CpuTarget's isa.
const HalvesKernels& HalvesKernelsOf(Isa vectors);

}  // namespace weft::cpu
