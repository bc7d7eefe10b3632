// Conversions of bf16 and f16 with 256-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/tiles/halves_lanes.h"

namespace weft::cpu {
constinit const HalvesKernels kHalvesAvx2 = {WidenHalves, NarrowHalves};
}  // namespace weft::cpu
