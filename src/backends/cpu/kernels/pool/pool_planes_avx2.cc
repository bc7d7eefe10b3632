// Pooling of planes with 256-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/pool/pool_planes_lanes.h"

namespace weft::cpu {
constinit const PlaneKernels kPlanesAvx2 = Kernels<8>();
}  // namespace weft::cpu
