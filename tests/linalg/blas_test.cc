// The parts of BLAS that src/linalg has in place of the reference's, beside sums in long double: every way to turn the factors, sizes
// around the tiles' and steps of any sign.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <random>
#include <vector>

#include "src/linalg/gemm.h"

namespace weft::linalg {
namespace {

using C32 = std::complex<float>;
using C64 = std::complex<double>;

extern "C" {
#define WEFT_GEMM(name, S)                                                                                       \
  void name(const char*, const char*, const int*, const int*, const int*, const S*, const S*, const int*, const S*, \
            const int*, const S*, S*, const int*, size_t, size_t);
WEFT_GEMM(sgemm_, float)
WEFT_GEMM(dgemm_, double)
WEFT_GEMM(cgemm_, C32)
WEFT_GEMM(zgemm_, C64)
#undef WEFT_GEMM
#define WEFT_RANK_K(once, twice, S, R)                                                                                    \
  void once(const char*, const char*, const int*, const int*, const R*, const S*, const int*, const R*, S*, const int*,  \
            size_t, size_t);                                                                                             \
  void twice(const char*, const char*, const int*, const int*, const S*, const S*, const int*, const S*, const int*,     \
             const R*, S*, const int*, size_t, size_t);
WEFT_RANK_K(ssyrk_, ssyr2k_, float, float)
WEFT_RANK_K(dsyrk_, dsyr2k_, double, double)
WEFT_RANK_K(cherk_, cher2k_, C32, float)
WEFT_RANK_K(zherk_, zher2k_, C64, double)
#undef WEFT_RANK_K
#define WEFT_TRSM(name, S)                                                                                                 \
  void name(const char*, const char*, const char*, const char*, const int*, const int*, const S*, const S*, const int*, S*, \
            const int*, size_t, size_t, size_t, size_t);
WEFT_TRSM(strsm_, float)
WEFT_TRSM(dtrsm_, double)
WEFT_TRSM(ctrsm_, C32)
WEFT_TRSM(ztrsm_, C64)
#undef WEFT_TRSM
#define WEFT_VECTOR(gemv, symv, R)                                                                                        \
  void gemv(const char*, const int*, const int*, const R*, const R*, const int*, const R*, const int*, const R*, R*,     \
            const int*, size_t);                                                                                         \
  void symv(const char*, const int*, const R*, const R*, const int*, const R*, const int*, const R*, R*, const int*, size_t);
WEFT_VECTOR(sgemv_, ssymv_, float)
WEFT_VECTOR(dgemv_, dsymv_, double)
#undef WEFT_VECTOR
}

template <typename S>
constexpr bool kIsComplex = !std::is_floating_point_v<S>;
using Exact = std::complex<long double>;

template <typename S>
class Matrix {
 public:
  Matrix(int rows, int columns, int stride, std::mt19937& random) : stride(stride), data(static_cast<size_t>(stride * std::max(columns, 1))) {
    std::uniform_real_distribution<double> draw(-1, 1);
    for (S& x : data) {
      if constexpr (kIsComplex<S>) {
        x = S(static_cast<typename S::value_type>(draw(random)), static_cast<typename S::value_type>(draw(random)));
      } else {
        x = static_cast<S>(draw(random));
      }
    }
    static_cast<void>(rows);
  }
  Exact At(int64_t i, int64_t j) const {
    const S x = data[static_cast<size_t>(j * stride + i)];
    return {std::real(x), std::imag(x)};
  }
  // op(x)
  Exact At(char op, int64_t i, int64_t j) const {
    const Exact x = op == 'N' ? At(i, j) : At(j, i);
    return op == 'C' ? std::conj(x) : x;
  }

  int stride;
  std::vector<S> data;
};

template <typename S>
void ExpectNear(const S& got, const Exact& want, double depth, const std::string& where) {
  const long double near = (depth + 4) * 4 * (sizeof(S) / (kIsComplex<S> ? 2 : 1) == 4 ? 1.2e-7L : 2.3e-16L);
  ASSERT_LE(std::abs(Exact(std::real(got), std::imag(got)) - want), near * (1 + std::abs(want))) << where;
}

template <typename S, typename F>
void CheckGemm(F gemm) {
  std::mt19937 random(1);
  int compared = 0;
  for (const auto& [m, n, k] : std::vector<std::array<int, 3>>{{1, 1, 1}, {3, 2, 5}, {24, 8, 128}, {25, 9, 129}, {47, 13, 300}, {100, 33, 17}, {0, 3, 2}, {3, 0, 2}, {3, 4, 0}, {49, 7, 64}, {130, 70, 31}}) {
    for (const char a_op : {'N', 'T', 'C'}) {
      for (const char b_op : {'N', 'T', 'C'}) {
        for (const S beta : {S(0), S(1), S(-0.5)}) {
          const S alpha = kIsComplex<S> ? S(0.75) : S(-2);
          const Matrix<S> a(0, a_op == 'N' ? k : m, std::max(1, a_op == 'N' ? m : k) + 2, random), b(0, b_op == 'N' ? n : k, std::max(1, b_op == 'N' ? k : n) + 1, random);
          Matrix<S> c(0, n, std::max(1, m) + 3, random);
          const Matrix<S> before = c;
          if (beta == S(0)) std::fill(c.data.begin(), c.data.end(), S(NAN));  // which is not read
          gemm(&a_op, &b_op, &m, &n, &k, &alpha, a.data.data(), &a.stride, b.data.data(), &b.stride, &beta, c.data.data(), &c.stride, 1, 1);
          for (int64_t j = 0; j < n; ++j) {
            for (int64_t i = 0; i < m; ++i) {
              Exact sum = 0;
              for (int64_t d = 0; d < k; ++d) sum += a.At(a_op, i, d) * b.At(b_op, d, j);
              const Exact want = Exact(std::real(alpha), std::imag(alpha)) * sum + Exact(std::real(beta), std::imag(beta)) * before.At(i, j);
              ExpectNear(c.data[static_cast<size_t>(j * c.stride + i)], want, k, std::string{a_op, b_op} + " " + std::to_string(m));
              ++compared;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 100'000);
}

TEST(Blas, ProductsOfMatricesInF32) { CheckGemm<float>(sgemm_); }
TEST(Blas, ProductsOfMatricesInF64) { CheckGemm<double>(dgemm_); }
TEST(Blas, ProductsOfMatricesInC64) { CheckGemm<C32>(cgemm_); }
TEST(Blas, ProductsOfMatricesInC128) { CheckGemm<C64>(zgemm_); }

template <typename S, typename Once, typename Twice>
void CheckRankK(Once once, Twice twice) {
  using R = decltype(std::real(S()));
  std::mt19937 random(2);
  const char turned = kIsComplex<S> ? 'C' : 'T';
  for (const auto& [n, k] : std::vector<std::array<int, 2>>{{1, 1}, {5, 3}, {64, 10}, {65, 33}, {150, 7}, {4, 0}, {0, 3}}) {
    for (const char triangle : {'L', 'U'}) {
      for (const char op : {'N', turned}) {
        for (const R beta : {R(0), R(1), R(0.5)}) {
          for (const bool second : {false, true}) {
            const Matrix<S> a(0, op == 'N' ? k : n, std::max(1, op == 'N' ? n : k) + 1, random), b(0, op == 'N' ? k : n, a.stride, random);
            Matrix<S> c(0, n, std::max(1, n) + 2, random);
            const Matrix<S> before = c;
            const R plain = 1.5;
            S alpha = S(1.5);
            if constexpr (kIsComplex<S>) alpha = S(1.5, second ? -0.5 : 0);
            if (second) {
              twice(&triangle, &op, &n, &k, &alpha, a.data.data(), &a.stride, b.data.data(), &b.stride, &beta, c.data.data(), &c.stride, 1, 1);
            } else {
              once(&triangle, &op, &n, &k, &plain, a.data.data(), &a.stride, &beta, c.data.data(), &c.stride, 1, 1);
            }
            const char first = op, other = op == 'N' ? turned : 'N';
            for (int64_t j = 0; j < n; ++j) {
              for (int64_t i = 0; i < n; ++i) {
                const size_t at = static_cast<size_t>(j * c.stride + i);
                if (triangle == 'L' ? i < j : i > j) {
                  ASSERT_EQ(c.data[at], before.data[at]) << "the other triangle is written";
                  continue;
                }
                Exact sum = 0;
                const Exact factor(std::real(alpha), std::imag(alpha));
                for (int64_t d = 0; d < k; ++d) {
                  if (second) {
                    sum += factor * a.At(first, i, d) * b.At(other, d, j) + std::conj(factor) * b.At(first, i, d) * a.At(other, d, j);
                  } else {
                    sum += factor * a.At(first, i, d) * a.At(other, d, j);
                  }
                }
                Exact old = before.At(i, j);
                if (i == j) old = std::real(old);
                ExpectNear(c.data[at], sum + static_cast<long double>(beta) * old, 2 * k, std::string{triangle, op});
                if (i == j) ASSERT_EQ(std::imag(c.data[at]), 0);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Blas, UpdatesOfTrianglesInF32) { CheckRankK<float>(ssyrk_, ssyr2k_); }
TEST(Blas, UpdatesOfTrianglesInF64) { CheckRankK<double>(dsyrk_, dsyr2k_); }
TEST(Blas, UpdatesOfTrianglesInC64) { CheckRankK<C32>(cherk_, cher2k_); }
TEST(Blas, UpdatesOfTrianglesInC128) { CheckRankK<C64>(zherk_, zher2k_); }

// op(a) x, or x op(a), is what b was, times alpha.
template <typename S, typename F>
void CheckTrsm(F trsm) {
  std::mt19937 random(5);
  for (const auto& [m, n] : std::vector<std::array<int, 2>>{{1, 1}, {5, 3}, {16, 17}, {17, 16}, {70, 9}, {9, 70}, {0, 2}, {2, 0}}) {
    for (const char side : {'L', 'R'}) {
      for (const char triangle : {'L', 'U'}) {
        for (const char op : {'N', 'T', 'C'}) {
          for (const char diagonal : {'N', 'U'}) {
            const int order = side == 'L' ? m : n;
            const S alpha = S(0.5);
            Matrix<S> a(0, order, order + 1, random), b(0, n, m + 2, random);
            // A matrix that is solved without growth; what is not read would show.
            for (int64_t j = 0; j < order; ++j) {
              for (int64_t i = 0; i < order; ++i) {
                S& x = a.data[static_cast<size_t>(j * a.stride + i)];
                x = i == j ? (diagonal == 'U' ? S(NAN) : S(2) + x) : (triangle == 'L') == (i > j) ? x / S(static_cast<float>(order)) : S(NAN);
              }
            }
            const Matrix<S> before = b;
            trsm(&side, &triangle, &op, &diagonal, &m, &n, &alpha, a.data.data(), &a.stride, b.data.data(), &b.stride, 1, 1, 1, 1);
            const auto at = [&](int64_t i, int64_t j) -> Exact {
              if (i == j && diagonal == 'U') return 1;
              const bool there = i == j || (triangle == 'L') == (op == 'N' ? i > j : i < j);
              return there ? a.At(op, i, j) : 0;
            };
            for (int64_t j = 0; j < n; ++j) {
              for (int64_t i = 0; i < m; ++i) {
                Exact sum = 0;
                for (int64_t k = 0; k < order; ++k) sum += side == 'L' ? at(i, k) * b.At(k, j) : b.At(i, k) * at(k, j);
                const Exact want = 0.5L * before.At(i, j);
                ASSERT_LE(std::abs(sum - want), (order + 4) * 8 * (sizeof(S) / (kIsComplex<S> ? 2 : 1) == 4 ? 1.2e-7L : 2.3e-16L))
                    << side << triangle << op << diagonal << " " << m << " " << n;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Blas, EquationsOfTrianglesInF32) { CheckTrsm<float>(strsm_); }
TEST(Blas, EquationsOfTrianglesInF64) { CheckTrsm<double>(dtrsm_); }
TEST(Blas, EquationsOfTrianglesInC64) { CheckTrsm<C32>(ctrsm_); }
TEST(Blas, EquationsOfTrianglesInC128) { CheckTrsm<C64>(ztrsm_); }

// A vector with a step, which may be negative: element 0 is the last one in memory then.
template <typename R>
size_t Place(int64_t i, int64_t count, int step) {
  return static_cast<size_t>(step > 0 ? i * step : (i - count + 1) * step);
}

template <typename R, typename Gemv, typename Symv>
void CheckVectors(Gemv gemv, Symv symv) {
  std::mt19937 random(3);
  for (const auto& [m, n] : std::vector<std::array<int, 2>>{{1, 1}, {3, 7}, {16, 4}, {17, 9}, {1030, 6}, {5, 1100}, {67, 67}}) {
    for (const int x_step : {1, 3, -2}) {
      for (const int y_step : {1, 2, -1}) {
        for (const R beta : {R(0), R(1), R(-0.5)}) {
          const R alpha = 1.25;
          for (const char op : {'N', 'T'}) {
            const int in = op == 'N' ? n : m, out = op == 'N' ? m : n;
            const Matrix<R> a(0, n, m + 1, random), x(0, 1, in * std::abs(x_step), random);
            Matrix<R> y(0, 1, out * std::abs(y_step), random);
            const Matrix<R> before = y;
            gemv(&op, &m, &n, &alpha, a.data.data(), &a.stride, x.data.data(), &x_step, &beta, y.data.data(), &y_step, 1);
            for (int64_t i = 0; i < out; ++i) {
              Exact sum = 0;
              for (int64_t j = 0; j < in; ++j) sum += a.At(op, i, j) * static_cast<long double>(x.data[Place<R>(j, in, x_step)]);
              const size_t at = Place<R>(i, out, y_step);
              ExpectNear(y.data[at], static_cast<long double>(alpha) * sum + static_cast<long double>(beta) * before.data[at], in, std::string{op});
            }
          }
          for (const char triangle : {'L', 'U'}) {
            const Matrix<R> a(0, m, m + 2, random), x(0, 1, m * std::abs(x_step), random);
            Matrix<R> y(0, 1, m * std::abs(y_step), random);
            const Matrix<R> before = y;
            symv(&triangle, &m, &alpha, a.data.data(), &a.stride, x.data.data(), &x_step, &beta, y.data.data(), &y_step, 1);
            for (int64_t i = 0; i < m; ++i) {
              Exact sum = 0;
              for (int64_t j = 0; j < m; ++j) {
                const bool there = triangle == 'L' ? i >= j : i <= j;
                sum += (there ? a.At(i, j) : a.At(j, i)) * static_cast<long double>(x.data[Place<R>(j, m, x_step)]);
              }
              const size_t at = Place<R>(i, m, y_step);
              ExpectNear(y.data[at], static_cast<long double>(alpha) * sum + static_cast<long double>(beta) * before.data[at], m, std::string{triangle});
            }
          }
        }
      }
    }
  }
}

TEST(Blas, ProductsOfMatricesAndVectorsInF32) { CheckVectors<float>(sgemv_, ssymv_); }
TEST(Blas, ProductsOfMatricesAndVectorsInF64) { CheckVectors<double>(dgemv_, dsymv_); }

// Each instruction set's inner loops beside the portable ones; the best alone run above.
template <typename R>
void CheckTile(const TileKernel<R>& tile) {
  std::mt19937 random(4);
  const int64_t depth = 37;
  const Matrix<R> a(0, static_cast<int>(depth), static_cast<int>(tile.rows), random), b(0, static_cast<int>(depth), static_cast<int>(tile.columns), random);
  std::vector<R> out(static_cast<size_t>(tile.rows * tile.columns), R(NAN));
  tile.run(depth, a.data.data(), b.data.data(), out.data());
  for (int64_t j = 0; j < tile.columns; ++j) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      Exact sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += a.At(i, k) * b.At(j, k);
      ExpectNear(out[static_cast<size_t>(j * tile.rows + i)], sum, depth, "tile");
    }
  }
}

TEST(Blas, TilesOfEveryInstructionSet) {
  CheckTile(PortableTileF32());
  CheckTile(PortableTileF64());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    CheckTile(Avx2TileF32());
    CheckTile(Avx2TileF64());
  }
  if (__builtin_cpu_supports("avx512f")) {
    CheckTile(Avx512TileF32());
    CheckTile(Avx512TileF64());
  }
#endif
}

}  // namespace
}  // namespace weft::linalg
