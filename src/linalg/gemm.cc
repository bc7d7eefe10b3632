// BLAS's gemm, and what is made of it, for LAPACK: op(a) and op(b) are packed in blocks that stay in the caches, complex matrices as their two planes,
// and multiplied tile by tile. Also the two functions that Fortran code asks its surroundings for.
#include "src/linalg/gemm.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

#include "src/linalg/leaving.h"
#include "src/linalg/real_of.h"

namespace weft::linalg {
namespace {

constexpr int64_t kDepth = 128;          // of a block
constexpr int64_t kBlockBytes = 49'152;  // of a packed block of a: with the strip of b it stays on a thread's stack
constexpr int64_t kFewProducts = 4'096;  // below it packing costs more than it gains

// op(a): element [i, j] lies at i row + j column.
template <typename S>
struct Factor {
  const S* data;
  int64_t row, column;
  bool conjugated;

  S at(int64_t i, int64_t j) const {
    const S x = data[i * row + j * column];
    if constexpr (kIsComplex<S>) {
      return conjugated ? std::conj(x) : x;
    } else {
      return x;
    }
  }
};

template <typename S>
Factor<S> FactorOf(char op, const S* data, int64_t stride) {
  const bool plain = op == 'N' || op == 'n';
  return {data, plain ? 1 : stride, plain ? stride : 1, op == 'C' || op == 'c'};
}

// The part of op(a) from a row and a column on.
template <typename S>
Factor<S> From(const Factor<S>& a, int64_t row, int64_t column) {
  return {a.data + row * a.row + column * a.column, a.row, a.column, a.conjugated};
}

// alpha a b, each element a sum of `depth` terms.
template <typename S>
struct Product {
  int64_t depth;
  S alpha;
  Factor<S> a, b;
};

// A matrix that is written, column after column, `stride` elements apart.
template <typename S>
struct Columns {
  S* data;
  int64_t stride;

  Columns From(int64_t row, int64_t column) const { return {data + column * stride + row, stride}; }
};

// Space for packed strips; of complex numbers the second plane stands `plane` elements behind the first.
template <typename R>
struct Planes {
  R* data;
  int64_t plane;
};

// Rows [first, first + count) and depths [from, from + depth) as strips of `width` rows, each depth after depth; what is missing is 0.
template <typename S, typename R, typename At>
void Pack(At at, int64_t first, int64_t count, int64_t from, int64_t depth, int64_t width, Planes<R> to) {
  const int64_t plane = to.plane;
  for (int64_t strip = 0; strip < count; strip += width) {
    const int64_t there = std::min(width, count - strip);
    for (int64_t k = 0; k < depth; ++k) {
      R* const row = to.data + strip * depth + k * width;
      for (int64_t i = 0; i < there; ++i) {
        const S x = at(first + strip + i, from + k);
        row[i] = std::real(x);
        if constexpr (kIsComplex<S>) row[plane + i] = std::imag(x);
      }
      for (int64_t i = there; i < width; ++i) {
        row[i] = 0;
        if constexpr (kIsComplex<S>) row[plane + i] = 0;
      }
    }
  }
}

// The sums of one tile; of complex numbers the four products of planes.
template <typename S, typename R>
struct TileSums {
  static constexpr int kPlanes = kIsComplex<S> ? 4 : 1;
  alignas(64) R of[kPlanes][kMostTileRows * kMostTileColumns];

  void Run(const TileKernel<R>& tile, int64_t depth, const R* a, int64_t a_plane, const R* b, int64_t b_plane) {
    tile.run(depth, a, b, of[0]);
    if constexpr (kIsComplex<S>) {
      tile.run(depth, a + a_plane, b + b_plane, of[1]);
      tile.run(depth, a, b + b_plane, of[2]);
      tile.run(depth, a + a_plane, b, of[3]);
    }
  }
  S At(int64_t i) const {
    if constexpr (kIsComplex<S>) {
      return S(of[0][i] - of[1][i], of[2][i] + of[3][i]);
    } else {
      return of[0][i];
    }
  }
};

template <typename S>
void Scale(int64_t m, int64_t n, S beta, S* c, int64_t stride) {
  if (beta == S(1)) return;
  Looks looks(m);
  for (int64_t j = 0; j < n; ++j) {
    looks.Pass();
    S* const column = c + j * stride;
    for (int64_t i = 0; i < m; ++i) column[i] = beta == S(0) ? S(0) : beta * column[i];
  }
}

// Column by column of c, which lies so.
template <typename S>
void MultiplyFew(int64_t m, int64_t n, const Product<S>& product, Columns<S> c) {
  for (int64_t j = 0; j < n; ++j) {
    S* const column = c.data + j * c.stride;
    for (int64_t k = 0; k < product.depth; ++k) {
      const S factor = product.alpha * product.b.at(k, j);
      for (int64_t i = 0; i < m; ++i) column[i] += factor * product.a.at(i, k);
    }
  }
}

// c = product + beta c
template <typename S>
void Multiply(int64_t m, int64_t n, const Product<S>& product, S beta, Columns<S> c) {
  using R = typename RealOf<S>::Type;
  constexpr int64_t kPlanes = kIsComplex<S> ? 2 : 1;
  if (m <= 0 || n <= 0) return;
  Scale(m, n, beta, c.data, c.stride);
  const int64_t depth = product.depth;
  const S alpha = product.alpha;
  const Factor<S>&a = product.a, &b = product.b;
  if (depth <= 0 || alpha == S(0)) return;
  if (static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(depth) < kFewProducts) {
    MultiplyFew(m, n, product, c);
    return;
  }
  static const TileKernel<R> tile = BestTile<R>();
  constexpr int64_t kMostRows = kBlockBytes / (kPlanes * kDepth * static_cast<int64_t>(sizeof(R)));
  static_assert(kMostRows >= kMostTileRows / (sizeof(R) / 4), "a block has one tile of rows at least");
  alignas(64) R packed_a[kPlanes * kMostRows * kDepth];
  alignas(64) R packed_b[kPlanes * kMostTileColumns * kDepth];
  TileSums<S, R> sums;
  const int64_t block = kMostRows / tile.rows * tile.rows;
  for (int64_t from = 0; from < depth; from += kDepth) {
    const int64_t deep = std::min(kDepth, depth - from);
    for (int64_t top = 0; top < m; top += block) {
      const int64_t rows = std::min(block, m - top);
      const int64_t a_plane = (rows + tile.rows - 1) / tile.rows * tile.rows * deep, b_plane = tile.columns * deep;
      Pack<S, R>([&](int64_t i, int64_t k) { return a.at(i, k); }, top, rows, from, deep, tile.rows,
                 Planes<R>{packed_a, a_plane});
      for (int64_t left = 0; left < n; left += tile.columns) {
        LeaveIfLaunchEnds();
        const int64_t columns = std::min(tile.columns, n - left);
        Pack<S, R>([&](int64_t j, int64_t k) { return b.at(k, j); }, left, columns, from, deep, tile.columns,
                   Planes<R>{packed_b, b_plane});
        for (int64_t strip = 0; strip < rows; strip += tile.rows) {
          sums.Run(tile, deep, packed_a + strip * deep, a_plane, packed_b, b_plane);
          const int64_t there = std::min(tile.rows, rows - strip);
          for (int64_t j = 0; j < columns; ++j) {
            S* const to = c.data + (left + j) * c.stride + top + strip;
            for (int64_t i = 0; i < there; ++i) to[i] += alpha * sums.At(j * tile.rows + i);
          }
        }
      }
    }
  }
}

// One triangle of c += product: blocks beside the diagonal in their places, those on it through room of their own. Of
// hermitian c the diagonal stays real.
template <typename S>
void AddToTriangle(bool lower, int64_t n, const Product<S>& product, Columns<S> c) {
  constexpr int64_t kSide = 64;
  S square[kSide * kSide];
  for (int64_t at = 0; at < n; at += kSide) {
    const int64_t size = std::min(kSide, n - at), rest = lower ? n - at - size : at, top = lower ? at + size : 0;
    const auto part = [&](int64_t row) {
      return Product<S>{product.depth, product.alpha, From(product.a, row, 0), From(product.b, 0, at)};
    };
    Multiply<S>(rest, size, part(top), S(1), c.From(top, at));
    Multiply<S>(size, size, part(at), S(0), {square, size});
    for (int64_t j = 0; j < size; ++j) {
      for (int64_t i = lower ? j : 0; i < (lower ? size : j + 1); ++i)
        c.data[(at + j) * c.stride + at + i] += square[j * size + i];
    }
  }
}

template <typename S>
void ScaleTriangle(bool lower, int64_t n, typename RealOf<S>::Type beta, S* c, int64_t stride, bool hermitian) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = lower ? j : 0; i < (lower ? n : j + 1); ++i) {
      S& x = c[j * stride + i];
      x = beta == 0 ? S(0) : beta == 1 ? x : beta * x;
      if (hermitian && i == j) x = std::real(x);
    }
  }
}

// The operands of an update: matrices as they are stored. Without b it is made of a alone.
template <typename S>
struct Ranks {
  int64_t depth;
  S alpha;
  Columns<const S> a, b;
};

// c = alpha a op(b) + conj(alpha) b op(a) + beta c, or with the factors turned round first; without b once, by a.
template <typename S>
void UpdateTriangle(char triangle, char op, int64_t n, const Ranks<S>& ranks, typename RealOf<S>::Type beta,
                    Columns<S> c) {
  const bool lower = triangle == 'L' || triangle == 'l', plain = op == 'N' || op == 'n';
  const char other = kIsComplex<S> ? 'C' : 'T';
  const auto first = [&](Columns<const S> x) { return FactorOf(plain ? 'N' : other, x.data, x.stride); };
  const auto second = [&](Columns<const S> x) { return FactorOf(plain ? other : 'N', x.data, x.stride); };
  const bool both = ranks.b.data != nullptr;
  ScaleTriangle<S>(lower, n, beta, c.data, c.stride, kIsComplex<S>);
  if (ranks.depth <= 0) return;
  AddToTriangle<S>(lower, n, {ranks.depth, ranks.alpha, first(ranks.a), second(both ? ranks.b : ranks.a)}, c);
  if (both) {
    S conjugate = ranks.alpha;
    if constexpr (kIsComplex<S>) conjugate = std::conj(ranks.alpha);
    AddToTriangle<S>(lower, n, {ranks.depth, conjugate, first(ranks.b), second(ranks.a)}, c);
  }
  if (kIsComplex<S>) ScaleTriangle<S>(lower, n, 1, c.data, c.stride, true);
}

constexpr int64_t kFewRows = 16;  // of a triangle that is solved by hand

// a x = b for x, in b's place: a, op applied, is a triangle. Halves, between which a product takes what the first explains.
template <typename S>
void SolveLeft(bool lower, bool unit, int64_t n, int64_t m, const Factor<S>& a, S* b, int64_t stride) {
  if (n > kFewRows) {
    const int64_t top = n / 2, rest = n - top;
    const Factor<S> corner = From(a, top, top);
    if (lower) {
      SolveLeft(lower, unit, top, m, a, b, stride);
      Multiply<S>(rest, m, {top, S(-1), From(a, top, 0), FactorOf('N', b, stride)}, S(1), {b + top, stride});
      return SolveLeft(lower, unit, rest, m, corner, b + top, stride);
    }
    SolveLeft(lower, unit, rest, m, corner, b + top, stride);
    Multiply<S>(top, m, {rest, S(-1), From(a, 0, top), FactorOf('N', b + top, stride)}, S(1), {b, stride});
    return SolveLeft(lower, unit, top, m, a, b, stride);
  }
  S triangle[kFewRows * kFewRows];  // by columns
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = lower ? j : 0; i < (lower ? n : j + 1); ++i)
      triangle[j * kFewRows + i] = i == j && unit ? S(1) : a.at(i, j);
  }
  Looks looks(n * n);
  for (int64_t column = 0; column < m; ++column) {
    looks.Pass();
    S* const x = b + column * stride;
    for (int64_t step = 0; step < n; ++step) {
      const int64_t k = lower ? step : n - 1 - step;
      if (!unit) x[k] /= triangle[k * kFewRows + k];
      for (int64_t i = lower ? k + 1 : 0; i < (lower ? n : k); ++i) x[i] -= triangle[k * kFewRows + i] * x[k];
    }
  }
}

// x a = b, the same for columns.
template <typename S>
void SolveRight(bool lower, bool unit, int64_t m, int64_t n, const Factor<S>& a, S* b, int64_t stride) {
  if (n > kFewRows) {
    const int64_t left = n / 2, rest = n - left;
    const Factor<S> corner = From(a, left, left);
    S* const second = b + left * stride;
    if (!lower) {
      SolveRight(lower, unit, m, left, a, b, stride);
      Multiply<S>(m, rest, {left, S(-1), FactorOf('N', b, stride), From(a, 0, left)}, S(1), {second, stride});
      return SolveRight(lower, unit, m, rest, corner, second, stride);
    }
    SolveRight(lower, unit, m, rest, corner, second, stride);
    Multiply<S>(m, left, {rest, S(-1), FactorOf('N', second, stride), From(a, left, 0)}, S(1), {b, stride});
    return SolveRight(lower, unit, m, left, a, b, stride);
  }
  for (int64_t step = 0; step < n; ++step) {
    const int64_t k = lower ? n - 1 - step : step;
    S* const x = b + k * stride;
    if (!unit) {
      const S pivot = a.at(k, k);
      for (int64_t i = 0; i < m; ++i) x[i] /= pivot;
    }
    for (int64_t j = lower ? 0 : k + 1; j < (lower ? k : n); ++j) {
      const S factor = a.at(k, j);
      for (int64_t i = 0; i < m; ++i) b[j * stride + i] -= factor * x[i];
    }
  }
}

}  // namespace

extern "C" {

#define WEFT_GEMM(name, S)                                                                                            \
  void name(const char* op_a, const char* op_b, const int* m, const int* n, const int* k, const S* alpha, const S* a, \
            const int* lda, const S* b, const int* ldb, const S* beta, S* c, const int* ldc, size_t, size_t) {        \
    Multiply<S>(*m, *n, {*k, *alpha, FactorOf(*op_a, a, *lda), FactorOf(*op_b, b, *ldb)}, *beta, {c, *ldc});          \
  }
WEFT_GEMM(sgemm_, float)
WEFT_GEMM(dgemm_, double)
WEFT_GEMM(cgemm_, std::complex<float>)
WEFT_GEMM(zgemm_, std::complex<double>)
#undef WEFT_GEMM

// Equations of triangles.
#define WEFT_TRSM(name, S)                                                                                            \
  void name(const char* side, const char* triangle, const char* op, const char* diagonal, const int* m, const int* n, \
            const S* alpha, const S* a, const int* lda, S* b, const int* ldb, size_t, size_t, size_t, size_t) {       \
    const bool left = *side == 'L' || *side == 'l', unit = *diagonal == 'U' || *diagonal == 'u';                      \
    const bool plain = *op == 'N' || *op == 'n', lower = (*triangle == 'L' || *triangle == 'l') == plain;             \
    Scale<S>(*m, *n, *alpha, b, *ldb);                                                                                \
    if (*m <= 0 || *n <= 0 || *alpha == S(0)) return;                                                                 \
    const Factor<S> factor = FactorOf(*op, a, *lda);                                                                  \
    left ? SolveLeft<S>(lower, unit, *m, *n, factor, b, *ldb) : SolveRight<S>(lower, unit, *m, *n, factor, b, *ldb);  \
  }
WEFT_TRSM(strsm_, float)
WEFT_TRSM(dtrsm_, double)
WEFT_TRSM(ctrsm_, std::complex<float>)
WEFT_TRSM(ztrsm_, std::complex<double>)
#undef WEFT_TRSM

// Updates of symmetric and hermitian matrices.
#define WEFT_RANK_K(once, twice, S, R, A)                                                                       \
  void once(const char* triangle, const char* op, const int* n, const int* k, const A* alpha, const S* a,       \
            const int* lda, const R* beta, S* c, const int* ldc, size_t, size_t) {                              \
    UpdateTriangle<S>(*triangle, *op, *n, {*k, S(*alpha), {a, *lda}, {nullptr, 0}}, *beta, {c, *ldc});          \
  }                                                                                                             \
  void twice(const char* triangle, const char* op, const int* n, const int* k, const S* alpha, const S* a,      \
             const int* lda, const S* b, const int* ldb, const R* beta, S* c, const int* ldc, size_t, size_t) { \
    UpdateTriangle<S>(*triangle, *op, *n, {*k, *alpha, {a, *lda}, {b, *ldb}}, *beta, {c, *ldc});                \
  }
WEFT_RANK_K(ssyrk_, ssyr2k_, float, float, float)
WEFT_RANK_K(dsyrk_, dsyr2k_, double, double, double)
WEFT_RANK_K(cherk_, cher2k_, std::complex<float>, float, float)
WEFT_RANK_K(zherk_, zher2k_, std::complex<double>, double, double)
#undef WEFT_RANK_K

// LAPACK's report of an argument out of range, which this room's never are. The reference's prints and ends the process.
void xerbla_(const char* /*routine*/, const int* /*argument*/, size_t /*length*/) {}

// gfortran's concatenation, of names of routines: the rest of the result is spaces.
void _gfortran_concat_string(size_t length, char* to, size_t first_length, const char* first, size_t second_length,
                             const char* second) {
  const size_t head = std::min(length, first_length), tail = std::min(length - head, second_length);
  if (head > 0) std::memcpy(to, first, head);
  if (tail > 0) std::memcpy(to + head, second, tail);
  if (length > head + tail) std::memset(to + head + tail, ' ', length - head - tail);
}

}  // extern "C"

}  // namespace weft::linalg
