// Scatter's rows with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/scatter/scatter_rows_lanes.h"

namespace weft::cpu {
constinit const ScatterKernels kScatterPortable = Kernels<16>();
}  // namespace weft::cpu
