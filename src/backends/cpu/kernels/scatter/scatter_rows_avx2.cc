// Scatter's rows with 256-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/scatter/scatter_rows_lanes.h"

namespace weft::cpu {
constinit const ScatterKernels kScatterAvx2 = Kernels<32>();
}  // namespace weft::cpu
