// Pooling of planes with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/pool/pool_planes_lanes.h"

namespace weft::cpu {
constinit const PlaneKernels kPlanesAvx512 = Kernels<16>();
}  // namespace weft::cpu
