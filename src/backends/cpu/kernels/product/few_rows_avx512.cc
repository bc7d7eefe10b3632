// Products of few rows with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/product/few_rows_lanes.h"

namespace weft::cpu {
constinit const FewRowsKernels kFewRowsAvx512 = Kernels<64>();
}  // namespace weft::cpu
