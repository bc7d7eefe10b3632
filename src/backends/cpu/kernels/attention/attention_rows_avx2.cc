// Attention's exponentials with 256-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/attention/attention_columns_lanes.h"
#include "src/backends/cpu/kernels/attention/attention_rows_lanes.h"

namespace weft::cpu {
constinit const AttentionKernels kAttentionAvx2 = Kernels<8>(HalvesPortable, FinishHalvesPortable);
constinit const AttentionColumnKernels kAttentionColumnsAvx2 = ColumnKernels<8>();
}  // namespace weft::cpu
