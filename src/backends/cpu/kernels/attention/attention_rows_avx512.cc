// Attention's exponentials with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/attention/attention_columns_lanes.h"
#include "src/backends/cpu/kernels/attention/attention_rows_lanes.h"

namespace weft::cpu {
constinit const AttentionKernels kAttentionAvx512 = Kernels<16>(Halves<16>, FinishHalves<16>);
constinit const AttentionColumnKernels kAttentionColumnsAvx512 = ColumnKernels<16>();
}  // namespace weft::cpu
