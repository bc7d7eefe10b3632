// Attention's exponentials with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/attention/attention_columns_lanes.h"
#include "src/backends/cpu/kernels/attention/attention_rows_lanes.h"

namespace weft::cpu {
constinit const AttentionKernels kAttentionPortable = Kernels<4>();
constinit const AttentionColumnKernels kAttentionColumnsPortable = ColumnKernels<4>();
}  // namespace weft::cpu
