// Factors of dense matrices, by LAPACK: what the operation matrix_factors computes, on the CPU and on the reference. Complex
// matrices come and go as two planes of real numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/thread_pool.h"

namespace weft::linalg {

// Results, in their order; of complex matrices each factor is two planes:
//   kLu          l and u in one matrix [m, n]; pivots [min(m, n)] and the rows' order [m], integers
//   kQr          q, r
//   kEigh        eigenvalues, ascending; eigenvectors
//   kSvd         singular values, descending; u, the conjugate transpose of v
//   kEig         eigenvalues, eigenvectors: always two planes each
//   kCholesky    the triangle
//   kTriangular  x of op(a) x = b; the operands are a and b
//   kReflectors  r, and below it the reflectors whose product is q; their factors [min(m, n)]
//   kLdl         the lower triangle l, with d's blocks on and below its diagonal; pivots [n] as LAPACK counts them, integers
//   kLdlSolve    x of a x = b; the operands are kLdl's factor of a, b, and the pivots [n, 1] as real numbers
enum class Kind : int64_t { kLu, kQr, kEigh, kSvd, kEig, kCholesky, kTriangular, kReflectors, kLdl, kLdlSolve };

// Bits of Job::mode.
inline constexpr int64_t kFull = 1;         // qr, svd: orthogonal factors that are square
inline constexpr int64_t kValuesOnly = 2;   // eigh, svd, eig: no vectors
inline constexpr int64_t kLower = 4;        // eigh, cholesky, triangular: the triangle that is read
inline constexpr int64_t kRight = 8;        // triangular: x op(a) = b
inline constexpr int64_t kUnit = 16;        // triangular: ones on the diagonal
inline constexpr int64_t kTransposed = 32;  // triangular: op transposes
inline constexpr int64_t kConjugated = 64;  // triangular: op conjugates, too
inline constexpr int64_t kHermitian = 128;  // ldl, ldl solve: complex matrices are hermitian; else symmetric

// A batch of matrices, one kind of factors. `rows` and `columns` are of one matrix, of b where there is one.
struct Job {
  Kind kind = Kind::kLu;
  int64_t mode = 0;
  bool wide = false;  // f64, else f32
  bool complex = false;
  int64_t batch = 1, rows = 0, columns = 0;

  bool has(int64_t bit) const { return (mode & bit) != 0; }
};

// One result of one matrix, or one plane of it.
struct Shape {
  std::vector<int64_t> dims;
  bool integers = false;
  int64_t count() const;
};
std::vector<Shape> Results(const Job& job);

// The largest smaller dimension whose work space 32-bit LAPACK can count.
inline constexpr int64_t kMostRows = 20'000;

// Computes all matrices of the batch, dealt to the pool where there is one. A matrix with an element that is not finite, and one
// whose iteration does not converge, has NaN everywhere, and so has one without a Cholesky decomposition, and a solution by pivots
// that no decomposition gives. Stops between
// matrices where the launch ends. RESOURCE_EXHAUSTED without memory for the work space.
absl::Status Run(const Job& job, std::span<const void* const> operands, std::span<void* const> results,
                 ThreadPool* pool);

}  // namespace weft::linalg
