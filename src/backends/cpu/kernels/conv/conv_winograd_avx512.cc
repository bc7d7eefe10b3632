// Winograd's transforms with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/conv/conv_winograd_lanes.h"

namespace weft::cpu {
constinit const WinogradKernels kWinogradAvx512 = Kernels<64>();
}  // namespace weft::cpu
