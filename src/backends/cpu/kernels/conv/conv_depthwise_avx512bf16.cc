// Depthwise convolution of bf16 where the processor converts to it; called only there.
#include "src/backends/cpu/kernels/conv/conv_depthwise_pairs_lanes.h"

namespace weft::cpu {
void GatherPairsBF16(const ChannelRun<float>& run) { GatherPairs(run); }
}  // namespace weft::cpu
