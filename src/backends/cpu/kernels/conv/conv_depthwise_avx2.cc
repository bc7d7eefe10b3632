// Convolution across channels with 256-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/conv/conv_depthwise_lanes.h"

namespace weft::cpu {
constinit const ChannelKernels kChannelsAvx2 = Kernels<32>(kHalvesAvx2);
}  // namespace weft::cpu
