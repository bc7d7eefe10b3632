// Convolution across channels with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/conv/conv_depthwise_lanes.h"

namespace weft::cpu {
constinit const ChannelKernels kChannelsPortable = Kernels<16>(kHalvesPortable);
}  // namespace weft::cpu
