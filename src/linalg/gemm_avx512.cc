// Tiles of products with AVX-512: 24 sums in 32 registers.
#include "src/linalg/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "src/linalg/gemm_lanes.h"

namespace weft::linalg {
namespace {

struct F32 {
  using Element = float;
  using Vector = __m512;
  static constexpr int kCount = 16;
  static Vector Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(float* to, Vector x) { _mm512_storeu_ps(to, x); }
  static Vector Spread(float x) { return _mm512_set1_ps(x); }
  static Vector MultiplyAdd(Vector x, Vector y, Vector sum) { return _mm512_fmadd_ps(x, y, sum); }
};
struct F64 {
  using Element = double;
  using Vector = __m512d;
  static constexpr int kCount = 8;
  static Vector Load(const double* from) { return _mm512_loadu_pd(from); }
  static void Store(double* to, Vector x) { _mm512_storeu_pd(to, x); }
  static Vector Spread(double x) { return _mm512_set1_pd(x); }
  static Vector MultiplyAdd(Vector x, Vector y, Vector sum) { return _mm512_fmadd_pd(x, y, sum); }
};

}  // namespace

TileKernel<float> Avx512TileF32() { return {48, 8, RunTile<F32, 3, 8>}; }
TileKernel<double> Avx512TileF64() { return {24, 8, RunTile<F64, 3, 8>}; }
ColumnKernels<float> Avx512ColumnsF32() { return {AddColumns<F32>, DotColumns<F32>, AddAndDotColumns<F32>}; }
ColumnKernels<double> Avx512ColumnsF64() { return {AddColumns<F64>, DotColumns<F64>, AddAndDotColumns<F64>}; }

}  // namespace weft::linalg
#endif
