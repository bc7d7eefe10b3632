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

// A matrix, column after column, `stride` elements apart.
template <typename R>
struct Matrix {
  int64_t rows, columns;
  const R* data;
  int64_t stride;
};

template <typename R>
struct Vector {
  R* data;
  int64_t step;

  R& operator[](int64_t i) const { return data[i * step]; }
  // Element 0 first: steps back begin at the end.
  Vector FromFirst(int64_t count) const { return {step < 0 ? data + (1 - count) * step : data, step}; }
};

template <typename R>
void Scale(int64_t count, R beta, Vector<R> y) {
  if (beta == 1) return;
  for (int64_t i = 0; i < count; ++i) y[i] = beta == 0 ? R(0) : beta * y[i];
}

// y += alpha a x
template <typename R>
void AddProduct(R alpha, const Matrix<R>& matrix, Vector<const R> x, Vector<R> y) {
  const auto [m, n, a, lda] = matrix;
  R gathered[kRows];
  Looks looks(kRows * n);
  for (int64_t top = 0; top < m; top += kRows) {
    looks.Pass();
    const int64_t rows = std::min(kRows, m - top);
    R* const out = y.step == 1 ? y.data + top : gathered;
    if (y.step != 1) {
      for (int64_t i = 0; i < rows; ++i) gathered[i] = y[top + i];
    }
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      const R factors[4] = {alpha * x[j], alpha * x[j + 1], alpha * x[j + 2], alpha * x[j + 3]};
      Kernels<R>().add(rows, a + j * lda + top, lda, factors, out);
    }
    for (; j < n; ++j) {
      const R factor = alpha * x[j];
      const R* const column = a + j * lda + top;
      for (int64_t i = 0; i < rows; ++i) out[i] += factor * column[i];
    }
    if (y.step != 1) {
      for (int64_t i = 0; i < rows; ++i) y[top + i] = gathered[i];
    }
  }
}

// y += alpha a^T x
template <typename R>
void AddTransposed(R alpha, const Matrix<R>& matrix, Vector<const R> x, Vector<R> y) {
  const auto [m, n, a, lda] = matrix;
  R gathered[kRows];
  Looks looks(kRows * n);
  for (int64_t top = 0; top < m; top += kRows) {
    looks.Pass();
    const int64_t rows = std::min(kRows, m - top);
    const R* in = x.data + top;
    if (x.step != 1) {
      for (int64_t i = 0; i < rows; ++i) gathered[i] = x[top + i];
      in = gathered;
    }
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      R sums[4] = {};
      Kernels<R>().dot(rows, a + j * lda + top, lda, in, sums);
      for (int64_t c = 0; c < 4; ++c) y[j + c] += alpha * sums[c];
    }
    for (; j < n; ++j) {
      const R* const column = a + j * lda + top;
      R sum = 0;
      for (int64_t i = 0; i < rows; ++i) sum += column[i] * in[i];
      y[j] += alpha * sum;
    }
  }
}

// y = alpha op(a) x + beta y
template <typename R>
void Gemv(char op, R alpha, const Matrix<R>& a, Vector<const R> x, R beta, Vector<R> y) {
  const bool plain = op == 'N' || op == 'n';
  if (a.rows <= 0 || a.columns <= 0) return;
  x = x.FromFirst(plain ? a.columns : a.rows);
  y = y.FromFirst(plain ? a.rows : a.columns);
  Scale(plain ? a.rows : a.columns, beta, y);
  if (alpha == 0) return;
  plain ? AddProduct(alpha, a, x, y) : AddTransposed(alpha, a, x, y);
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
void Symv(char triangle, R alpha, const Matrix<R>& matrix, Vector<const R> x, R beta, Vector<R> y) {
  const bool lower = triangle == 'L' || triangle == 'l';
  const int64_t n = matrix.rows, lda = matrix.stride;
  const R* const a = matrix.data;
  if (n <= 0) return;
  x = x.FromFirst(n);
  y = y.FromFirst(n);
  Scale(n, beta, y);
  if (alpha == 0) return;
  if (x.step == 1 && y.step == 1) return AddSymmetric(lower, n, alpha, a, lda, x.data, y.data);
  for (int64_t i = 0; i < n; ++i) {
    R sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += ((lower ? i >= j : i <= j) ? a[j * lda + i] : a[i * lda + j]) * x[j];
    y[i] += alpha * sum;
  }
}

}  // namespace

extern "C" {

#define WEFT_MATRIX_VECTOR(gemv, symv, R)                                                                       \
  void gemv(const char* op, const int* m, const int* n, const R* alpha, const R* a, const int* lda, const R* x, \
            const int* incx, const R* beta, R* y, const int* incy, size_t) {                                    \
    Gemv<R>(*op, *alpha, {*m, *n, a, *lda}, {x, *incx}, *beta, {y, *incy});                                     \
  }                                                                                                             \
  void symv(const char* triangle, const int* n, const R* alpha, const R* a, const int* lda, const R* x,         \
            const int* incx, const R* beta, R* y, const int* incy, size_t) {                                    \
    Symv<R>(*triangle, *alpha, {*n, *n, a, *lda}, {x, *incx}, *beta, {y, *incy});                               \
  }
WEFT_MATRIX_VECTOR(sgemv_, ssymv_, float)
WEFT_MATRIX_VECTOR(dgemv_, dsymv_, double)
#undef WEFT_MATRIX_VECTOR

}  // extern "C"

}  // namespace weft::linalg
