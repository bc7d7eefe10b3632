// Attention's exponentials with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/attention/attention_columns_lanes.h"
#include "src/backends/cpu/kernels/attention/attention_rows_lanes.h"

namespace weft::cpu {
void HalvesPortable(const AttentionRows& run) { Halves<4>(run); }
void FinishHalvesPortable(const AttentionResult& run) { FinishHalves<4>(run); }
constinit const AttentionKernels kAttentionPortable = Kernels<4>(HalvesPortable, FinishHalvesPortable);
constinit const AttentionColumnKernels kAttentionColumnsPortable = ColumnKernels<4>();
}  // namespace weft::cpu
