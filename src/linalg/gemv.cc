// BLAS's products of real matrices and vectors, for LAPACK: four columns in one pass.
#include <algorithm>
#include <cstddef>

#include "src/linalg/gemm.h"
#include "src/linalg/leaving.h"

namespace weft::linalg {
namespace {

constexpr int64_t kRows = 1024;  // of a pass: vectors whose elements are apart are gathered for so many

template <typename R>
const ColumnKernels<R>& Kernels() {
  static const ColumnKernels<R> kernels = BestColumns<R>();
  return kernels;
}

// Where element 0 of a vector lies: steps back begin at the end.
template <typename R>
R* FirstOf(R* x, int64_t count, int64_t step) {
  return step < 0 ? x + (1 - count) * step : x;
}

template <typename R>
void Scale(int64_t count, R beta, R* y, int64_t step) {
  if (beta == 1) return;
  for (int64_t i = 0; i < count; ++i) y[i * step] = beta == 0 ? R(0) : beta * y[i * step];
}

// y += alpha a x
template <typename R>
void AddProduct(int64_t m, int64_t n, R alpha, const R* a, int64_t lda, const R* x, int64_t x_step, R* y,
                int64_t y_step) {
  R gathered[kRows];
  Looks looks(kRows * n);
  for (int64_t top = 0; top < m; top += kRows) {
    looks.Pass();
    const int64_t rows = std::min(kRows, m - top);
    R* const out = y_step == 1 ? y + top : gathered;
    if (y_step != 1) {
      for (int64_t i = 0; i < rows; ++i) gathered[i] = y[(top + i) * y_step];
    }
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      const R factors[4] = {alpha * x[j * x_step], alpha * x[(j + 1) * x_step], alpha * x[(j + 2) * x_step],
                            alpha * x[(j + 3) * x_step]};
      Kernels<R>().add(rows, a + j * lda + top, lda, factors, out);
    }
    for (; j < n; ++j) {
      const R factor = alpha * x[j * x_step];
      const R* const column = a + j * lda + top;
      for (int64_t i = 0; i < rows; ++i) out[i] += factor * column[i];
    }
    if (y_step != 1) {
      for (int64_t i = 0; i < rows; ++i) y[(top + i) * y_step] = gathered[i];
    }
  }
}

// y += alpha a^T x
template <typename R>
void AddTransposed(int64_t m, int64_t n, R alpha, const R* a, int64_t lda, const R* x, int64_t x_step, R* y,
                   int64_t y_step) {
  R gathered[kRows];
  Looks looks(kRows * n);
  for (int64_t top = 0; top < m; top += kRows) {
    looks.Pass();
    const int64_t rows = std::min(kRows, m - top);
    const R* in = x + top;
    if (x_step != 1) {
      for (int64_t i = 0; i < rows; ++i) gathered[i] = x[(top + i) * x_step];
      in = gathered;
    }
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      R sums[4] = {};
      Kernels<R>().dot(rows, a + j * lda + top, lda, in, sums);
      for (int64_t c = 0; c < 4; ++c) y[(j + c) * y_step] += alpha * sums[c];
    }
    for (; j < n; ++j) {
      const R* const column = a + j * lda + top;
      R sum = 0;
      for (int64_t i = 0; i < rows; ++i) sum += column[i] * in[i];
      y[j * y_step] += alpha * sum;
    }
  }
}

template <typename R>
void Gemv(char op, int64_t m, int64_t n, R alpha, const R* a, int64_t lda, const R* x, int64_t x_step, R beta, R* y,
          int64_t y_step) {
  const bool plain = op == 'N' || op == 'n';
  if (m <= 0 || n <= 0) return;
  x = FirstOf(x, plain ? n : m, x_step);
  y = FirstOf(y, plain ? m : n, y_step);
  Scale(plain ? m : n, beta, y, y_step);
  if (alpha == 0) return;
  plain ? AddProduct(m, n, alpha, a, lda, x, x_step, y, y_step)
        : AddTransposed(m, n, alpha, a, lda, x, x_step, y, y_step);
}

// y += alpha a x for symmetric a, of which one triangle is read; x and y without steps. Four columns at a time: the square on the
// diagonal by hand, what is beside it in one pass.
template <typename R>
void AddSymmetric(bool lower, int64_t n, R alpha, const R* a, int64_t lda, const R* x, R* y) {
  Looks looks(4 * n);
  for (int64_t at = 0; at < n; at += 4) {
    looks.Pass();
    const int64_t size = std::min<int64_t>(4, n - at);
    for (int64_t j = 0; j < size; ++j) {
      for (int64_t i = 0; i < size; ++i) {
        const bool there = lower ? i >= j : i <= j;
        const int64_t row = there ? i : j, column = there ? j : i;
        y[at + i] += alpha * a[(at + column) * lda + at + row] * x[at + j];
      }
    }
    const int64_t rest = lower ? n - at - size : at, top = lower ? at + size : 0;
    const R* const columns = a + at * lda + top;
    if (size == 4) {
      const R factors[4] = {alpha * x[at], alpha * x[at + 1], alpha * x[at + 2], alpha * x[at + 3]};
      R sums[4] = {};
      Kernels<R>().both(rest, columns, lda, factors, y + top, x + top, sums);
      for (int64_t c = 0; c < 4; ++c) y[at + c] += alpha * sums[c];
      continue;
    }
    for (int64_t c = 0; c < size; ++c) {
      const R factor = alpha * x[at + c];
      R sum = 0;
      for (int64_t i = 0; i < rest; ++i) {
        y[top + i] += factor * columns[c * lda + i];
        sum += columns[c * lda + i] * x[top + i];
      }
      y[at + c] += alpha * sum;
    }
  }
}

// Vectors with steps go row by row, which LAPACK never asks for.
template <typename R>
void Symv(char triangle, int64_t n, R alpha, const R* a, int64_t lda, const R* x, int64_t x_step, R beta, R* y,
          int64_t y_step) {
  const bool lower = triangle == 'L' || triangle == 'l';
  if (n <= 0) return;
  x = FirstOf(x, n, x_step);
  y = FirstOf(y, n, y_step);
  Scale(n, beta, y, y_step);
  if (alpha == 0) return;
  if (x_step == 1 && y_step == 1) return AddSymmetric(lower, n, alpha, a, lda, x, y);
  for (int64_t i = 0; i < n; ++i) {
    R sum = 0;
    for (int64_t j = 0; j < n; ++j)
      sum += ((lower ? i >= j : i <= j) ? a[j * lda + i] : a[i * lda + j]) * x[j * x_step];
    y[i * y_step] += alpha * sum;
  }
}

}  // namespace

extern "C" {

#define WEFT_MATRIX_VECTOR(gemv, symv, R)                                                                       \
  void gemv(const char* op, const int* m, const int* n, const R* alpha, const R* a, const int* lda, const R* x, \
            const int* incx, const R* beta, R* y, const int* incy, size_t) {                                    \
    Gemv<R>(*op, *m, *n, *alpha, a, *lda, x, *incx, *beta, y, *incy);                                           \
  }                                                                                                             \
  void symv(const char* triangle, const int* n, const R* alpha, const R* a, const int* lda, const R* x,         \
            const int* incx, const R* beta, R* y, const int* incy, size_t) {                                    \
    Symv<R>(*triangle, *n, *alpha, a, *lda, x, *incx, *beta, y, *incy);                                         \
  }
WEFT_MATRIX_VECTOR(sgemv_, ssymv_, float)
WEFT_MATRIX_VECTOR(dgemv_, dsymv_, double)
#undef WEFT_MATRIX_VECTOR

}  // extern "C"

}  // namespace weft::linalg
