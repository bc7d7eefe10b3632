// Factors of matrices in rules: the operation matrix_factors, and formulas of stacks of matrices [..., m, n] that decompositions
// and their gradients share.
#pragma once

#include "src/linalg/factors.h"
#include "src/ops/batching.h"
#include "src/ops/complex.h"
#include "src/ops/linalg/triangles.h"

namespace weft::ops {

#define WEFT_OP(name) extern const ir::OpDef kOp_##name;
#include "src/ops/special.list"
#undef WEFT_OP

// Tells whether a node is matrix_factors, or becomes some: a composite whose expansion has it, complex equations of triangles.
bool BecomesFactors(const ir::Node& node);

// The job of a matrix_factors node of such attributes and operands, whose planes it counts.
absl::StatusOr<linalg::Job> FactorsJob(const ir::Attrs& attrs, std::span<const ir::Type* const> operands);

// The factors of real or complex matrices, each one value; `of` are x, or a and b of a triangular solve. Eigenvalues of any
// matrix and their vectors are complex.
ir::Values Factors(ir::Builder& b, linalg::Kind kind, int64_t mode, std::span<const ir::Value> of);

// The type of a result that has the leading dimensions of x.
ir::Type Stacked(const ir::Type& x, DType dtype, std::initializer_list<int64_t> dims);
// Checks that x has two dimensions at least.
absl::Status CheckMatrix(std::string_view name, const ir::Type& x);
// Checks that LAPACK can count a matrix like x.
absl::Status CheckSize(std::string_view name, const ir::Type& x);

inline int64_t RowsOf(const ir::Value& x) { return x.dims()[x.dims().size() - 2]; }
inline int64_t ColumnsOf(const ir::Value& x) { return x.dims().back(); }

// x y, and the conjugate transpose.
ir::Value Product(ir::Builder& b, const ir::Value& x, const ir::Value& y);
ir::Value Adjoint(ir::Builder& b, const ir::Value& x);
// x + y, where either may be empty without a failure.
ir::Value Sum(ir::Builder& b, const ir::Value& x, const ir::Value& y);
// The real part of a complex value; a real value in another type, which may be complex.
ir::Value RealPart(ir::Builder& b, const ir::Value& x);
ir::Value As(ir::Builder& b, const ir::Value& x, DType dtype);
// Vectors [..., n] as rows or columns of matrices of shape `dims`.
ir::Value Rows(ir::Builder& b, const ir::Value& v, const Dims& dims);
ir::Value Columns(ir::Builder& b, const ir::Value& v, const Dims& dims);
// Each column times its number of v, each row times its number.
ir::Value TimesColumns(ir::Builder& b, const ir::Value& x, const ir::Value& v);
ir::Value TimesRows(ir::Builder& b, const ir::Value& x, const ir::Value& v);
// The main diagonal of square or other matrices; square matrices with that diagonal and zeros; x with 0 or `value` there.
ir::Value Diagonal(ir::Builder& b, const ir::Value& x);
ir::Value DiagonalMatrix(ir::Builder& b, const ir::Value& v);
ir::Value WithoutDiagonal(ir::Builder& b, const ir::Value& x, double value = 0);
// Ones on the diagonal, zeros elsewhere, in x's type and shape.
ir::Value IdentityLike(ir::Builder& b, const ir::Value& x);
// The first rows or columns; zeros below or to the right of x.
ir::Value FirstRows(ir::Builder& b, const ir::Value& x, int64_t count);
ir::Value FirstColumns(ir::Builder& b, const ir::Value& x, int64_t count);
ir::Value Widen(ir::Builder& b, const ir::Value& x, int64_t rows, int64_t columns);
// Rows of x in another order, [..., m] integers; and back from it.
ir::Value TakeRows(ir::Builder& b, const ir::Value& x, const ir::Value& order);
ir::Value PutRows(ir::Builder& b, const ir::Value& x, const ir::Value& order);
// The gradient by one triangle of hermitian matrices, of which g is the gradient by all elements as if they were free. PyTorch's
// convention.
ir::Value OfTriangle(ir::Builder& b, const ir::Value& g, bool lower);

// x of a x = b, or of a's transpose; [..., n, n] and [..., n, k].
ir::Value SolveSquare(ir::Builder& b, const ir::Value& a, const ir::Value& x, bool transpose);
// The distance of 1 from the next number of the type: 2^-23, or 2^-52 of f64 and c128.
double Epsilon(DType dtype);

// Makers of this room's operations: a composite that has a gradient of its own and computes by its expansion.
consteval ir::OpDef Decomposition(ir::OpDef named) {
  named.since = 2;
  named.kind = ir::Kind::kComposite;
  if (named.results.empty()) named.results = kResult;
  named.batching = BatchLeading;
  named.lowering = ir::Lowering::kExpand;
  if (named.absent.empty()) named.absent = kCompositeAbsent;
  return named;
}
// One that only other operations' rules reach.
consteval ir::OpDef Internal(ir::OpDef named) {
  named = Decomposition(named);
  named.exported = false;
  return named;
}
inline constexpr ir::Tolerance kFactorTolerance = {
    .f32 = 2e-4, .f64 = 1e-11, .bf16 = 3e-2, .f16 = 6e-3, .absolute = 2e-4};
inline constexpr ir::OperandDef kMatrixOperands[] = {{"x", ir::kF | ir::kC, "[..., m, n]"}};
inline constexpr ir::OperandDef kSquareOperands[] = {{"x", ir::kF | ir::kC, "[..., n, n]"}};

}  // namespace weft::ops
