// Cholesky decompositions and triangular solves on the launch list: blocks of 64 rows by hand, everything before a block
// at once as one matrix product.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/backends/cpu/launch/host_kernels.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kColumns = 128;  // of a solve at a time: 64 rows of them stay in the first cache

template <typename T>
constexpr DType kTypeOf = sizeof(T) == 4 ? DType::kF32 : DType::kF64;

// y += a x
template <typename T>
void Axpy(int64_t n, T a, const T* __restrict x, T* __restrict y) {
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

// C[rows, columns] += A B, C being part of a matrix of `stride` columns.
GemmCall Update(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t stride) {
  GemmCall call;
  call.input = call.output = dtype;
  call.m = rows;
  call.n = columns;
  call.k = depth;
  call.c_row_stride = stride;
  call.accumulate = true;
  return call;
}

// Where members are large, each is spread over the pool by its products; small ones go side by side.
template <typename F>
absl::Status ForEachMember(int64_t batch, int64_t n, ThreadPool& pool, F f) {
  if (n <= kBlock) {
    pool.ParallelFor(batch, [&](int64_t i) {
      if (!LaunchEnds()) (void)f(i);  // without products nothing fails
    });
    return absl::OkStatus();
  }
  for (int64_t i = 0; i < batch; ++i) WEFT_RETURN_IF_ERROR(f(i));
  return absl::OkStatus();
}

struct CholeskyCall {
  DType dtype;
  int64_t batch, n;
  bool lower;
};
absl::StatusOr<CholeskyCall> DecodeCholesky(std::span<const int64_t> p) {
  if (p.size() != 4) return absl::DataLossError("a Cholesky decomposition of other parameters");
  return CholeskyCall{static_cast<DType>(p[0]), p[1], p[2], p[3] != 0};
}

GemmCall CholeskyUpdate(DType dtype, int64_t n, int64_t at) {
  GemmCall call = Update(dtype, n - at, std::min(kBlock, n - at), at, n);
  call.a.row_stride = n;
  call.b.row_stride = 1;
  call.b.col_stride = at;
  return call;
}

// The block of `size` rows and columns at `l`, rows `stride` apart; false if a pivot is not positive.
template <typename T>
bool FactorBlock(T* l, int64_t size, int64_t stride) {
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      T sum = l[i * stride + j];
      for (int64_t k = 0; k < j; ++k) sum -= l[i * stride + k] * l[j * stride + k];
      if (i == j && !(sum > 0)) return false;
      l[i * stride + j] = i == j ? std::sqrt(sum) : sum / l[j * stride + j];
    }
    std::fill(l + i * stride + i + 1, l + i * stride + size, T{0});
  }
  return true;
}

// Rows below a factored block: x d^T = row for each, d the block.
template <typename T>
void SolveBelow(T* rows, int64_t count, const T* d, int64_t size, int64_t stride, ThreadPool& pool) {
  // Minus the columns of d as rows: what one element of x takes from those after it.
  T taken[kBlock * kBlock];
  for (int64_t k = 0; k < size; ++k) {
    for (int64_t j = k; j < size; ++j) taken[k * kBlock + j] = -d[j * stride + k];
  }
  pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) {
    PieceLook look(static_cast<double>(size * size));
    for (T* row = rows + begin * stride; row != rows + end * stride && !look.Ends(); row += stride) {
      for (int64_t k = 0; k < size; ++k) {
        row[k] /= d[k * stride + k];
        Axpy(size - k - 1, row[k], taken + k * kBlock + k + 1, row + k + 1);
      }
    }
  });
}

// l, [n, n], has the lower triangle of a and zeros; `panel` room for one block of rows.
template <typename T>
absl::Status Factor(T* l, int64_t n, T* panel, KernelSet& kernels, ThreadPool& pool) {
  for (int64_t at = 0; at < n && !LaunchEnds(); at += kBlock) {
    const int64_t size = std::min(kBlock, n - at), stride = n;
    T* block = l + at * n + at;
    if (at > 0) {  // less what earlier columns explain
      for (int64_t i = 0; i < size; ++i) {
        for (int64_t k = 0; k < at; ++k) panel[i * at + k] = -l[(at + i) * n + k];
      }
      GemmCall call = CholeskyUpdate(kTypeOf<T>, n, at);
      call.a.data = l + at * n;
      call.b.data = panel;
      call.c = block;
      WEFT_RETURN_IF_ERROR(kernels.Gemm(call, pool));
    }
    if (!FactorBlock(block, size, stride)) {
      std::fill(l, l + n * n, std::numeric_limits<T>::quiet_NaN());
      return absl::OkStatus();
    }
    SolveBelow(block + size * stride, n - at - size, block, size, stride, pool);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Cholesky(const CholeskyCall& c, const HostCall& call) {
  const int64_t n = c.n;
  return ForEachMember(c.batch, n, call.pool, [&](int64_t member) {
    const T* a = static_cast<const T*>(call.buffers[0]) + member * n * n;
    T* l = static_cast<T*>(call.buffers[1]) + member * n * n;
    PieceLook look(static_cast<double>(n));
    for (int64_t i = 0; i < n && !look.Ends(); ++i) {
      for (int64_t j = 0; j <= i; ++j) l[i * n + j] = c.lower ? a[i * n + j] : a[j * n + i];
      std::fill(l + i * n + i + 1, l + (i + 1) * n, T{0});
    }
    const absl::Status status = Factor(l, n, static_cast<T*>(call.buffers[2]), call.kernels, call.pool);
    for (int64_t i = 0; !c.lower && i < n && !look.Ends(); ++i) {
      for (int64_t j = 0; j < i; ++j) std::swap(l[i * n + j], l[j * n + i]);
    }
    return status;
  });
}

// Buffers: a, then l and a panel of one block of rows.
absl::Status RunCholesky(const HostCall& call) {
  WEFT_ASSIGN_OR_RETURN(const CholeskyCall c, DecodeCholesky(call.params));
  return c.dtype == DType::kF64 ? Cholesky<double>(c, call) : Cholesky<float>(c, call);
}
absl::Status PrepareCholesky(const HostPreparation& call) {
  WEFT_ASSIGN_OR_RETURN(const CholeskyCall c, DecodeCholesky(call.params));
  for (int64_t at = kBlock; at < c.n; at += kBlock) {
    WEFT_RETURN_IF_ERROR(call.kernels.PrepareGemm(CholeskyUpdate(c.dtype, c.n, at), call.threads, call.needs));
  }
  return absl::OkStatus();
}

// op(a) x = b or x op(a) = b as a lower triangle's equations, from the first row on: transposed where a is on the right, from
// the last row where the triangle is then an upper one.
struct SolveCall {
  DType dtype;
  int64_t batch, n, m;  // a is [n, n]; b [n, m], or [m, n] on the right
  bool left, lower, unit, transposed;

  bool flip() const { return transposed == left; }  // a's rows are the triangle's columns
  bool backward() const { return lower == flip(); }
  bool direct() const { return left && !backward(); }  // b's rows are the equations' as they stand
};
absl::StatusOr<SolveCall> DecodeSolve(std::span<const int64_t> p) {
  if (p.size() != 8) return absl::DataLossError("a triangular solve of other parameters");
  return SolveCall{static_cast<DType>(p[0]), p[1], p[2], p[3], p[4] != 0, p[5] != 0, p[6] != 0, p[7] != 0};
}

GemmCall SolveUpdate(const SolveCall& c, int64_t at) {
  GemmCall call = Update(c.dtype, std::min(kBlock, c.n - at), c.m, at, c.m);
  call.a.row_stride = c.n;
  call.b.row_stride = c.m;
  return call;
}

// The triangle in equations' order: the diagonal, and minus what is below it.
template <typename T>
void PackTriangle(const SolveCall& c, const T* a, T* packed) {
  const int64_t n = c.n;
  PieceLook look(static_cast<double>(n));
  for (int64_t i = 0; i < n && !look.Ends(); ++i) {
    const int64_t row = c.backward() ? n - 1 - i : i;
    for (int64_t k = 0; k < i; ++k) {
      const int64_t column = c.backward() ? n - 1 - k : k;
      packed[i * n + k] = -(c.flip() ? a[column * n + row] : a[row * n + column]);
    }
    packed[i * n + i] = c.unit ? T{1} : a[row * n + row];
  }
}

// f(where in b, where in the equations' rows)
template <typename F>
void ForEachOfB(const SolveCall& c, F f) {
  PieceLook look(static_cast<double>(c.m));
  for (int64_t i = 0; i < c.n && !look.Ends(); ++i) {
    const int64_t row = c.backward() ? c.n - 1 - i : i;
    for (int64_t j = 0; j < c.m; ++j) f(c.left ? row * c.m + j : j * c.n + row, i * c.m + j);
  }
}

template <typename T>
absl::Status SolveRows(const SolveCall& c, const T* packed, T* x, KernelSet& kernels, ThreadPool& pool) {
  for (int64_t at = 0; at < c.n; at += kBlock) {
    if (LaunchEnds()) return absl::OkStatus();
    const int64_t end = std::min(at + kBlock, c.n), m = c.m;
    if (at > 0) {
      GemmCall call = SolveUpdate(c, at);
      call.a.data = packed + at * c.n;
      call.b.data = x;
      call.c = x + at * m;
      WEFT_RETURN_IF_ERROR(kernels.Gemm(call, pool));
    }
    pool.ParallelFor((m + kColumns - 1) / kColumns, [&](int64_t piece) {
      if (LaunchEnds()) return;
      const int64_t first = piece * kColumns, count = std::min(kColumns, m - first);
      for (int64_t i = at; i < end; ++i) {
        T* row = x + i * m + first;
        for (int64_t k = at; k < i; ++k) Axpy(count, packed[i * c.n + k], x + k * m + first, row);
        if (c.unit) continue;
        for (int64_t j = 0; j < count; ++j) row[j] /= packed[i * c.n + i];
      }
    });
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Solve(const SolveCall& c, const HostCall& call) {
  return ForEachMember(c.batch, c.n, call.pool, [&](int64_t member) -> absl::Status {
    const int64_t rows = member * c.n * c.m;
    const T* b = static_cast<const T*>(call.buffers[1]) + rows;
    T* x = static_cast<T*>(call.buffers[2]) + rows;
    T* packed = static_cast<T*>(call.buffers[3]) + (c.n <= kBlock ? member * c.n * c.n : 0);
    PackTriangle(c, static_cast<const T*>(call.buffers[0]) + member * c.n * c.n, packed);
    if (c.direct()) {
      std::copy(b, b + c.n * c.m, x);
      return SolveRows(c, packed, x, call.kernels, call.pool);
    }
    T* ordered = static_cast<T*>(call.buffers[4]) + rows;
    ForEachOfB(c, [&](int64_t i, int64_t k) { ordered[k] = b[i]; });
    WEFT_RETURN_IF_ERROR(SolveRows(c, packed, ordered, call.kernels, call.pool));
    ForEachOfB(c, [&](int64_t i, int64_t k) { x[i] = ordered[k]; });
    return absl::OkStatus();
  });
}

// Buffers: a, b, then x, the triangles in order (of all members where they are small, else of one), and where b's rows are
// not the equations' room for them.
absl::Status RunSolve(const HostCall& call) {
  WEFT_ASSIGN_OR_RETURN(const SolveCall c, DecodeSolve(call.params));
  return c.dtype == DType::kF64 ? Solve<double>(c, call) : Solve<float>(c, call);
}
absl::Status PrepareSolve(const HostPreparation& call) {
  WEFT_ASSIGN_OR_RETURN(const SolveCall c, DecodeSolve(call.params));
  for (int64_t at = kBlock; at < c.n && c.m > 0; at += kBlock) {
    WEFT_RETURN_IF_ERROR(call.kernels.PrepareGemm(SolveUpdate(c, at), call.threads, call.needs));
  }
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {
    {"cholesky", RunCholesky, PrepareCholesky},
    {"triangular_solve", RunSolve, PrepareSolve},
};

}  // namespace

std::span<const HostKernel> LinalgHostKernels() { return kKernels; }

int64_t CholeskyPanel(int64_t n) { return n <= kBlock ? 0 : kBlock * n; }
int64_t SolvePacked(int64_t batch, int64_t n) { return (n <= kBlock ? batch : 1) * n * n; }

}  // namespace weft::cpu
