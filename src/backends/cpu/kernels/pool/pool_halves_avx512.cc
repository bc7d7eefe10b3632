// Pooling of bf16 and f16 with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/pool/pool_halves_lanes.h"

namespace weft::cpu {
int64_t PoolHalvesAvx512(const HalvesWindow& window) { return PoolHalves(window); }
}  // namespace weft::cpu
