// cholesky and triangular_solve share these: checks of stacks of square matrices, and masks of their triangles.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// [..., n, n].
absl::Status CheckSquare(std::string_view name, const ir::Type& x);

// x on the triangle, 0 elsewhere. Strict: without the diagonal.
ir::Value Triangle(ir::Builder& b, const ir::Value& x, bool lower, bool strict = false);

// The last two dimensions exchanged.
ir::Value MatrixTranspose(ir::Builder& b, const ir::Value& x);

// StableHLO's triangular_solve.
enum class Transposition : int64_t { kNone = 0, kTranspose = 1, kAdjoint = 2 };
ir::Value TriangularSolve(ir::Builder& b, const ir::Value& a, const ir::Value& x, bool left_side, bool lower,
                          bool unit_diagonal, bool transpose);

}  // namespace weft::ops
