// Formulas of stacks of matrices (factors.h): short names, nothing is decided here.
#include <algorithm>

#include "src/ops/linalg/factors.h"

namespace weft::ops {

using ir::Builder;
using ir::Ints;
using ir::Type;
using ir::Value;

Type Stacked(const Type& x, DType dtype, std::initializer_list<int64_t> dims) {
  Dims all(x.dims.begin(), x.dims.end() - 2);
  all.insert(all.end(), dims.begin(), dims.end());
  return Type::Tensor(dtype, std::move(all));
}

absl::Status CheckMatrix(std::string_view name, const Type& x) {
  if (x.rank() >= 2) return absl::OkStatus();
  return UserError(name, " is ", ShortType(x), "; it must have at least 2 dimensions, those of matrices");
}

absl::Status CheckSize(std::string_view name, const Type& x) {
  const int64_t rows = x.dims[x.rank() - 2], columns = x.dims.back();
  if (std::min(rows, columns) <= linalg::kMostRows && std::max(rows, columns) <= INT32_MAX) return absl::OkStatus();
  return UserError(name, " is ", ShortType(x), "; a matrix has at most ", linalg::kMostRows,
                   " rows or columns, whichever are fewer");
}

Value Product(Builder& b, const Value& x, const Value& y) { return BatchMatmul(b, x, y, false, false); }
Value Adjoint(Builder& b, const Value& x) { return MatrixTranspose(b, Conj(b, x)); }
Value Sum(Builder& b, const Value& x, const Value& y) { return !x ? y : !y ? x : Add(b, x, y); }
Value RealPart(Builder& b, const Value& x) { return x && IsComplex(x.dtype()) ? Unary(b, kOp_real, x) : x; }
Value As(Builder& b, const Value& x, DType dtype) { return x && x.dtype() != dtype ? Convert(b, x, dtype) : x; }

namespace {

// v along every dimension of `dims` but one.
Value Spread(Builder& b, const Value& v, const Dims& dims, size_t without) {
  if (!v) return {};
  Ints positions = Axes(dims.size());
  positions.erase(positions.begin() + static_cast<ptrdiff_t>(without));
  return BroadcastInDim(b, v, dims, std::move(positions));
}

Value OnDiagonal(Builder& b, const Dims& dims) {
  const auto rank = static_cast<int64_t>(dims.size());
  return Compare(b, Direction::kEq, Iota(b, DType::kI64, dims, rank - 2), Iota(b, DType::kI64, dims, rank - 1));
}

Value First(Builder& b, const Value& x, size_t dimension, int64_t count) {
  if (!x || x.dims()[dimension] == count) return x;
  Ints limit = ToInts(x.dims());
  limit[dimension] = count;
  return Slice(b, x, Ints(limit.size(), 0), limit, Ints(limit.size(), 1));
}

Value AlongRows(Builder& b, const Value& x, const Value& places) {
  const auto rank = static_cast<int64_t>(x.dims().size());
  return Call(b, kOp_take_along_axis, {x, Columns(b, places, x.dims())}, {rank - 2});
}

}  // namespace

Value Rows(Builder& b, const Value& v, const Dims& dims) { return Spread(b, v, dims, dims.size() - 2); }
Value Columns(Builder& b, const Value& v, const Dims& dims) { return Spread(b, v, dims, dims.size() - 1); }
Value TimesColumns(Builder& b, const Value& x, const Value& v) {
  return x ? Mul(b, x, Rows(b, As(b, v, x.dtype()), x.dims())) : x;
}
Value TimesRows(Builder& b, const Value& x, const Value& v) {
  return x ? Mul(b, x, Columns(b, As(b, v, x.dtype()), x.dims())) : x;
}

Value Diagonal(Builder& b, const Value& x) {
  return Call(b, kOp_diagonal, {x}, {int64_t{0}, int64_t{-2}, int64_t{-1}});
}
Value DiagonalMatrix(Builder& b, const Value& v) {
  return Call(b, kOp_diag_embed, {v}, {int64_t{0}, int64_t{-2}, int64_t{-1}});
}
Value WithoutDiagonal(Builder& b, const Value& x, double value) {
  return x ? Select(b, OnDiagonal(b, x.dims()), FullLike(b, x, value), x) : x;
}
Value IdentityLike(Builder& b, const Value& x) {
  return x ? Select(b, OnDiagonal(b, x.dims()), FullLike(b, x, 1), FullLike(b, x, 0)) : x;
}

Value FirstRows(Builder& b, const Value& x, int64_t count) { return First(b, x, x ? x.dims().size() - 2 : 0, count); }
Value FirstColumns(Builder& b, const Value& x, int64_t count) {
  return First(b, x, x ? x.dims().size() - 1 : 0, count);
}
Value Widen(Builder& b, const Value& x, int64_t rows, int64_t columns) {
  if (!x || (rows == RowsOf(x) && columns == ColumnsOf(x))) return x;
  const size_t rank = x.dims().size();
  Ints high(rank, 0);
  high[rank - 2] = rows - RowsOf(x);
  high[rank - 1] = columns - ColumnsOf(x);
  return Pad(b, x, 0, Ints(rank, 0), high, Ints(rank, 0));
}

Value TakeRows(Builder& b, const Value& x, const Value& order) { return x && order ? AlongRows(b, x, order) : Value(); }
Value PutRows(Builder& b, const Value& x, const Value& order) {
  if (!x || !order) return {};
  const auto last = static_cast<int64_t>(order.dims().size()) - 1;
  return AlongRows(b, x, Call(b, kOp_argsort, {order}, {last}));
}

Value OfTriangle(Builder& b, const Value& g, bool lower) {
  if (!g) return {};
  const Value both = Add(b, g, Adjoint(b, g));
  const Value diagonal = DiagonalMatrix(b, As(b, RealPart(b, Diagonal(b, g)), g.dtype()));
  return Add(b, Triangle(b, both, lower, /*strict=*/true), diagonal);
}

Value SolveSquare(Builder& b, const Value& a, const Value& x, bool transpose) {
  return Call(b, kOp_solve_square, {a, x}, {int64_t{transpose}});
}

double Epsilon(DType dtype) { return PartOf(dtype) == DType::kF64 ? 0x1p-52 : 0x1p-23; }

}  // namespace weft::ops
