// Convolution across channels with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/conv/conv_depthwise_lanes.h"

namespace weft::cpu {
constinit const ChannelKernels kChannelsAvx512 = Kernels<64>(kHalvesAvx512);
}  // namespace weft::cpu
