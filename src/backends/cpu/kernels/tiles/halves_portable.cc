// Conversions of bf16 and f16 without instructions for it.
#include "src/backends/cpu/kernels/tiles/halves_lanes.h"

namespace weft::cpu {
constinit const HalvesKernels kHalvesPortable = {WidenHalves, NarrowHalves};
}  // namespace weft::cpu
