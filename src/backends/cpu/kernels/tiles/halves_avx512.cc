// Conversions of bf16 and f16 with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/tiles/halves_lanes.h"

namespace weft::cpu {
constinit const HalvesKernels kHalvesAvx512 = {WidenHalves, NarrowHalves};
}  // namespace weft::cpu
