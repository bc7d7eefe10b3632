// Tiles of products with AVX2 and FMA: 12 sums in 16 registers.
#include "src/linalg/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "src/linalg/gemm_lanes.h"

namespace weft::linalg {
namespace {

struct F32 {
  using Element = float;
  using Vector = __m256;
  static constexpr int kCount = 8;
  static Vector Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(float* to, Vector x) { _mm256_storeu_ps(to, x); }
  static Vector Spread(float x) { return _mm256_set1_ps(x); }
  static Vector MultiplyAdd(Vector x, Vector y, Vector sum) { return _mm256_fmadd_ps(x, y, sum); }
};
struct F64 {
  using Element = double;
  using Vector = __m256d;
  static constexpr int kCount = 4;
  static Vector Load(const double* from) { return _mm256_loadu_pd(from); }
  static void Store(double* to, Vector x) { _mm256_storeu_pd(to, x); }
  static Vector Spread(double x) { return _mm256_set1_pd(x); }
  static Vector MultiplyAdd(Vector x, Vector y, Vector sum) { return _mm256_fmadd_pd(x, y, sum); }
};

}  // namespace

TileKernel<float> Avx2TileF32() { return {16, 6, RunTile<F32, 2, 6>}; }
TileKernel<double> Avx2TileF64() { return {8, 6, RunTile<F64, 2, 6>}; }
ColumnKernels<float> Avx2ColumnsF32() { return {AddColumns<F32>, DotColumns<F32>, AddAndDotColumns<F32>}; }
ColumnKernels<double> Avx2ColumnsF64() { return {AddColumns<F64>, DotColumns<F64>, AddAndDotColumns<F64>}; }

}  // namespace weft::linalg
#endif
