// Products of few rows with 256-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/product/few_rows_lanes.h"

namespace weft::cpu {
constinit const FewRowsKernels kFewRowsAvx2 = Kernels<32>();
}  // namespace weft::cpu
