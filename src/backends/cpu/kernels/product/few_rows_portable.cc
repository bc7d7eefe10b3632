// Products of few rows with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/product/few_rows_lanes.h"

namespace weft::cpu {
constinit const FewRowsKernels kFewRowsPortable = Kernels<16>();
}  // namespace weft::cpu
