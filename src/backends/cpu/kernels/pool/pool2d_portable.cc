// Pooling of one pixel with the vectors that every x86-64 has.
#include "src/backends/cpu/kernels/pool/pool2d_pixel.h"

namespace weft::cpu {
void PoolForwardPortable(const PoolPixel& pixel) { Forward<4>(pixel); }
void PoolBackwardPortable(const PoolPixel& pixel) { Backward<4>(pixel); }
}  // namespace weft::cpu
