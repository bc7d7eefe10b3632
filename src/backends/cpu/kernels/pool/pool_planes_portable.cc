// Pooling of planes with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/pool/pool_planes_lanes.h"

namespace weft::cpu {
constinit const PlaneKernels kPlanesPortable = Kernels<4>();
}  // namespace weft::cpu
