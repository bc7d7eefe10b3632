// The best inner loops of this machine.
#include "src/linalg/gemm.h"

namespace weft::linalg {
namespace {

enum class Level { kPortable, kAvx2, kAvx512 };

Level Best() {
#if defined(__x86_64__)
  static const Level best = [] {
    if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return Level::kPortable;
    const bool all = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                     __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    return all ? Level::kAvx512 : Level::kAvx2;
  }();
  return best;
#else
  return Level::kPortable;
#endif
}

}  // namespace

#if defined(__x86_64__)
template <>
TileKernel<float> BestTile() {
  return Best() == Level::kAvx512 ? Avx512TileF32() : Best() == Level::kAvx2 ? Avx2TileF32() : PortableTileF32();
}
template <>
TileKernel<double> BestTile() {
  return Best() == Level::kAvx512 ? Avx512TileF64() : Best() == Level::kAvx2 ? Avx2TileF64() : PortableTileF64();
}
template <>
ColumnKernels<float> BestColumns() {
  return Best() == Level::kAvx512 ? Avx512ColumnsF32()
         : Best() == Level::kAvx2 ? Avx2ColumnsF32()
                                  : PortableColumnsF32();
}
template <>
ColumnKernels<double> BestColumns() {
  return Best() == Level::kAvx512 ? Avx512ColumnsF64()
         : Best() == Level::kAvx2 ? Avx2ColumnsF64()
                                  : PortableColumnsF64();
}
#else
template <>
TileKernel<float> BestTile() {
  return PortableTileF32();
}
template <>
TileKernel<double> BestTile() {
  return PortableTileF64();
}
template <>
ColumnKernels<float> BestColumns() {
  return PortableColumnsF32();
}
template <>
ColumnKernels<double> BestColumns() {
  return PortableColumnsF64();
}
#endif

}  // namespace weft::linalg
