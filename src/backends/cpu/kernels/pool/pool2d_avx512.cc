// Pooling of one pixel with 512-bit vectors; called only where the processor has them.
#include "src/backends/cpu/kernels/pool/pool2d_pixel.h"

namespace weft::cpu {
void PoolForwardAvx512(const PoolPixel& pixel) { Forward<16>(pixel); }
void PoolBackwardAvx512(const PoolPixel& pixel) { Backward<16>(pixel); }
}  // namespace weft::cpu
