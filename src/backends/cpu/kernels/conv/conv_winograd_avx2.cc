// Winograd's transforms with 256-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/conv/conv_winograd_lanes.h"

namespace weft::cpu {
constinit const WinogradKernels kWinogradAvx2 = Kernels<32>();
}  // namespace weft::cpu
