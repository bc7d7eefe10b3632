// Winograd's transforms with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/conv/conv_winograd_lanes.h"

namespace weft::cpu {
constinit const WinogradKernels kWinogradPortable = Kernels<16>();
}  // namespace weft::cpu
