// The inner loops of BLAS for each instruction set. LAPACK spends most of its time here, through the products of matrices
// (gemm.cc) and of matrices and vectors (gemv.cc), which this room defines in place of the reference BLAS's.
#pragma once

#include <cstdint>

namespace weft::linalg {

// out[columns][rows] = Σ a[k][rows] b[k][columns]: both packed, every tile whole, `out` overwritten.
template <typename R>
struct TileKernel {
  int64_t rows, columns;
  void (*run)(int64_t depth, const R* a, const R* b, R* out);
};

// Passes over four columns, `stride` apart, of `count` rows.
template <typename R>
struct ColumnKernels {
  // y[i] += Σ factors[c] a[c][i]
  void (*add)(int64_t count, const R* a, int64_t stride, const R* factors, R* y);
  // sums[c] += Σ a[c][i] x[i]
  void (*dot)(int64_t count, const R* a, int64_t stride, const R* x, R* sums);
  // Both in one pass over a.
  void (*both)(int64_t count, const R* a, int64_t stride, const R* factors, R* y, const R* x, R* sums);
};

// The best of this machine.
template <typename R>
TileKernel<R> BestTile();
template <typename R>
ColumnKernels<R> BestColumns();
template <>
TileKernel<float> BestTile();
template <>
TileKernel<double> BestTile();
template <>
ColumnKernels<float> BestColumns();
template <>
ColumnKernels<double> BestColumns();

// The largest tile of any instruction set.
inline constexpr int64_t kMostTileRows = 48;
inline constexpr int64_t kMostTileColumns = 8;

TileKernel<float> PortableTileF32();
TileKernel<double> PortableTileF64();
ColumnKernels<float> PortableColumnsF32();
ColumnKernels<double> PortableColumnsF64();
#if defined(__x86_64__)
TileKernel<float> Avx2TileF32();
TileKernel<double> Avx2TileF64();
ColumnKernels<float> Avx2ColumnsF32();
ColumnKernels<double> Avx2ColumnsF64();
TileKernel<float> Avx512TileF32();
TileKernel<double> Avx512TileF64();
ColumnKernels<float> Avx512ColumnsF32();
ColumnKernels<double> Avx512ColumnsF64();
#endif

}  // namespace weft::linalg
