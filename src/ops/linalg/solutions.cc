// Solutions of linear equations: solve, inv, cholesky_solve, cholesky_inverse, pinv, lstsq, tensorsolve, tensorinv.
#include <algorithm>

#include "src/ops/elementwise/special.h"
#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kTransposeAttrs[] = {{"transpose", AttrType::kBool, "a's transpose in place of a", false, "false"}};
constexpr AttrDef kSideAttrs[] = {{"left_side", AttrType::kBool, "a x = b; else x a = b", false, "true"}};
constexpr AttrDef kLowerAttrs[] = {
    {"lower", AttrType::kBool, "the factor is a lower triangle; else an upper one", false, "false"}};
constexpr AttrDef kToleranceAttrs[] = {
    {"rtol", AttrType::kDouble,
     "singular values up to this part of the largest count as 0; absent: the unit roundoff times the larger dimension"}};
constexpr AttrDef kPinvAttrs[] = {
    kToleranceAttrs[0],
    {"atol", AttrType::kDouble, "singular values up to this count as 0, too; with it rtol is 0 where it is absent",
     false, "0"},
    {"hermitian", AttrType::kBool, "x is hermitian, and its lower triangle is read", false, "false"}};
constexpr AttrDef kIndexAttrs[] = {{"ind", AttrType::kInt, "of how many leading dimensions, at least 1", false, "2"}};
constexpr OperandDef kEquations[] = {
    {"a", kF | kC, "[..., n, n]"},
    {"b", kF | kC, "[n] or [..., n, k]; [k, n] in place of [n, k] where a is on the right"}};
constexpr OperandDef kSquareEquations[] = {{"a", kF | kC, "[..., n, n]"}, {"b", kF | kC, "[..., n, k]"}};
constexpr OperandDef kFactored[] = {{"factor", kF | kC, "[..., n, n], cholesky's; the other triangle is not read"},
                                    {"b", kF | kC, "[n] or [..., n, k]"}};
constexpr OperandDef kFactor[] = {{"factor", kF | kC, "[..., n, n], cholesky's; the other triangle is not read"}};
constexpr OperandDef kLeast[] = {{"a", kF | kC, "[..., m, n]"}, {"b", kF | kC, "[m] or [..., m, k]"}};
constexpr OperandDef kTensors[] = {{"a", kF | kC, "b's dimensions, then others of as many elements"},
                                   {"b", kF | kC, "right side"}};
constexpr OperandDef kTensor[] = {{"a", kF | kC, "as many elements in the first ind dimensions as in the others"}};
constexpr std::string_view kLeastResults[] = {"solution", "residuals", "rank", "singular_values"};

// --- By LU

absl::Status InferSquare(const InferCall& call, Types* results) {
  const Type &a = *call.operands[0], &b = *call.operands[1];
  WEFT_RETURN_IF_ERROR(CheckSquare("a", a));
  WEFT_RETURN_IF_ERROR(CheckSize("a", a));
  if (b.rank() != a.rank() || !std::equal(a.dims.begin(), a.dims.end() - 1, b.dims.begin())) {
    return UserError("a is ", ShortType(a), " and b ", ShortType(b), "; all dimensions but the last must be equal");
  }
  results->push_back(b);
  return absl::OkStatus();
}
absl::Status ExpandSquare(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Values found = CallAll(b, kOp_lu, {call.operands[0]});
  if (!b.ok()) return b.status();
  const Value &lu = found[0], &order = found[2];
  if (!Attr<kTransposeAttrs, "transpose">(call.attrs)) {
    const Value y = TriangularSolve(b, lu, TakeRows(b, call.operands[1], order), true, true, true, false);
    results[0] = TriangularSolve(b, lu, y, true, false, false, false);
  } else {
    const Value y = TriangularSolve(b, lu, call.operands[1], true, false, false, true);
    results[0] = PutRows(b, TriangularSolve(b, lu, y, true, true, true, true), order);
  }
  return b.status();
}
// db solves the transposed equations, da is -db x^T, or its transpose.
absl::Status GradientSquare(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const bool transpose = Attr<kTransposeAttrs, "transpose">(call.node.attrs());
  const Value& x = call.results[0];
  const Value db = SolveSquare(b, call.operands[0], call.cotangents[0], !transpose);
  if (call.wanted[1]) grads[1] = db;
  if (call.wanted[0])
    grads[0] = Neg(b, transpose ? BatchMatmul(b, x, db, false, true) : BatchMatmul(b, db, x, false, true));
  return absl::OkStatus();
}

struct Equations {
  Dims a, b;  // with leading dimensions that are equal, b as matrices
  Dims result;
};
absl::StatusOr<Equations> EquationsOf(const Type& a, const Type& b, bool left, std::string_view name = "a") {
  WEFT_RETURN_IF_ERROR(CheckSquare(name, a));
  WEFT_RETURN_IF_ERROR(CheckSize(name, a));
  const int64_t n = a.dims.back();
  if (b.rank() == 0) return UserError("b is ", ShortType(b), "; a vector or matrices are needed");
  Dims matrix = b.dims;
  if (b.rank() == 1) matrix.insert(left ? matrix.end() : matrix.begin(), 1);
  const int64_t solved = left ? matrix[matrix.size() - 2] : matrix.back();
  if (solved != n)
    return UserError(name, " has ", n, " rows, and b, ", ShortType(b), ", has ", solved, "; they must be equal");
  WEFT_ASSIGN_OR_RETURN(const Dims batch, BroadcastDims(std::span(a.dims).first(a.rank() - 2),
                                                        std::span(matrix).first(matrix.size() - 2)));
  Equations found{batch, batch, {}};
  found.a.insert(found.a.end(), 2, n);
  found.b.insert(found.b.end(), matrix.end() - 2, matrix.end());
  found.result = found.b;
  if (b.rank() == 1) found.result.erase(left ? found.result.end() - 1 : found.result.end() - 2);
  if (!CheckedCount(found.a) || !CheckedCount(found.b)) return UserError("the equations have too many elements");
  return found;
}
absl::Status InferSolve(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Equations e,
                        EquationsOf(*call.operands[0], *call.operands[1], Attr<kSideAttrs, "left_side">(call.attrs)));
  results->push_back(Type::Tensor(call.operands[0]->dtype, e.result));
  return absl::OkStatus();
}
// x with one more dimension for a vector, and repeated over `dims`.
Value AsMatrices(Builder& b, const Value& x, const Dims& dims) {
  if (!x) return {};
  const Dims matrix(dims.end() - 2, dims.end());
  return BroadcastTo(b, x.dims().size() == 1 ? Reshape(b, x, matrix) : x, dims);
}
absl::Status ExpandSolve(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const bool left = Attr<kSideAttrs, "left_side">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const Equations e, EquationsOf(call.operands[0].type(), call.operands[1].type(), left));
  const Value a = BroadcastTo(b, call.operands[0], e.a), right = AsMatrices(b, call.operands[1], e.b);
  const Value x =
      left ? SolveSquare(b, a, right, false) : MatrixTranspose(b, SolveSquare(b, a, MatrixTranspose(b, right), true));
  results[0] = x ? Reshape(b, x, e.result) : x;
  return b.status();
}

absl::Status InferInverse(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckSquare("x", *call.operands[0]));
  WEFT_RETURN_IF_ERROR(CheckSize("x", *call.operands[0]));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
absl::Status ExpandInverse(const ExpandCall& call, std::span<Value> results) {
  results[0] = SolveSquare(call.b, call.operands[0], IdentityLike(call.b, call.operands[0]), false);
  return call.b.status();
}

// --- By Cholesky

absl::Status InferFactored(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Equations e, EquationsOf(*call.operands[0], *call.operands[1], true, "factor"));
  results->push_back(Type::Tensor(call.operands[0]->dtype, e.result));
  return absl::OkStatus();
}
Value SolveFactored(Builder& b, const Value& factor, const Value& x, bool lower) {
  const Value conjugate = Conj(b, factor);
  const Value y = TriangularSolve(b, lower ? factor : conjugate, x, true, lower, false, !lower);
  return TriangularSolve(b, lower ? conjugate : factor, y, true, lower, false, lower);
}
absl::Status ExpandFactored(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Equations e,
                        EquationsOf(call.operands[0].type(), call.operands[1].type(), true, "factor"));
  const Value factor = BroadcastTo(b, call.operands[0], e.a), right = AsMatrices(b, call.operands[1], e.b);
  if (!factor || !right) return b.status();
  const Value x = SolveFactored(b, factor, right, Attr<kLowerAttrs, "lower">(call.attrs));
  results[0] = x ? Reshape(b, x, e.result) : x;
  return b.status();
}
absl::Status InferFactor(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckSquare("factor", *call.operands[0]));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
absl::Status ExpandFactor(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  results[0] =
      SolveFactored(b, call.operands[0], IdentityLike(b, call.operands[0]), Attr<kLowerAttrs, "lower">(call.attrs));
  return b.status();
}

// --- By singular values

absl::Status CheckTolerance(const Attrs& attrs) {
  if (!HasAttr<kToleranceAttrs, "rtol">(attrs)) return absl::OkStatus();
  const double rtol = Attr<kToleranceAttrs, "rtol">(attrs);
  return rtol >= 0 ? absl::OkStatus() : UserError("rtol is ", rtol, "; it must be at least 0");
}
double ToleranceOf(const Attrs& attrs, const Value& x) {
  if (HasAttr<kToleranceAttrs, "rtol">(attrs)) return Attr<kToleranceAttrs, "rtol">(attrs);
  return Epsilon(x.dtype()) * static_cast<double>(std::max(RowsOf(x), ColumnsOf(x)));
}
absl::Status InferPinv(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const bool hermitian = Attr<kPinvAttrs, "hermitian">(call.attrs);
  WEFT_RETURN_IF_ERROR(hermitian ? CheckSquare("x", x) : CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  WEFT_RETURN_IF_ERROR(CheckTolerance(call.attrs));
  const double absolute = Attr<kPinvAttrs, "atol">(call.attrs);
  if (!(absolute >= 0)) return UserError("atol is ", absolute, "; it must be at least 0");
  results->push_back(Stacked(x, x.dtype, {x.dims.back(), x.dims[x.rank() - 2]}));
  return absl::OkStatus();
}
// Which singular values count: those above a part of the largest, which stands first.
Value Counts(Builder& b, const Value& s, double rtol) {
  if (!s) return {};
  const Value largest = ReduceKeep(b, s, Reducer::kMax, {static_cast<int64_t>(s.dims().size()) - 1});
  return largest ? Compare(b, Direction::kGt, s, BroadcastTo(b, Mul(b, largest, rtol), s.dims())) : largest;
}
absl::Status ExpandPinv(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  if (RowsOf(x) == 0 || ColumnsOf(x) == 0) {
    results[0] = Full(b, x.dtype(), Stacked(x.type(), x.dtype(), {ColumnsOf(x), RowsOf(x)}).dims, 0);
    return b.status();
  }
  const bool hermitian = Attr<kPinvAttrs, "hermitian">(call.attrs);
  const double absolute = Attr<kPinvAttrs, "atol">(call.attrs);
  const double rtol = absolute > 0 && !HasAttr<kToleranceAttrs, "rtol">(call.attrs) ? 0 : ToleranceOf(call.attrs, x);
  // x = u diag(s) vh; of hermitian matrices s has signs, and vh is u's adjoint.
  const Values found = hermitian ? CallAll(b, kOp_eigh, {x}, {int64_t{1}}) : CallAll(b, kOp_svd, {x}, {int64_t{0}});
  if (!b.ok()) return b.status();
  const Value &s = found[hermitian ? 0 : 1], size = hermitian ? Abs(b, s) : s;
  const Value largest = ReduceKeep(b, size, Reducer::kMax, {static_cast<int64_t>(s.dims().size()) - 1});
  const Value least = Maximum(b, Mul(b, largest, rtol), FullLike(b, largest, absolute));
  if (!least) return b.status();
  const Value counts = Compare(b, Direction::kGt, size, BroadcastTo(b, least, s.dims()));
  const Value inverse = Select(b, counts, Div(b, 1, Select(b, counts, s, FullLike(b, s, 1))), FullLike(b, s, 0));
  const Value v = hermitian ? found[1] : Adjoint(b, found[2]);
  results[0] = Product(b, TimesColumns(b, v, inverse), Adjoint(b, found[hermitian ? 1 : 0]));
  return b.status();
}
// Source: Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose variables separate
// (1973); for matrices of constant rank.
absl::Status GradientPinv(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& p = call.results[0];
  Value x = call.operands[0];
  const bool hermitian = Attr<kPinvAttrs, "hermitian">(call.node.attrs());
  if (hermitian) {  // as the lower triangle says
    const Value below = Triangle(b, x, true, true);
    if (!b.ok()) return b.status();
    x = Sum(b, Sum(b, below, Adjoint(b, below)), As(b, DiagonalMatrix(b, RealPart(b, Diagonal(b, x))), x.dtype()));
    if (!x) return b.status();
  }
  const Value gh = MatrixTranspose(b, call.cotangents[0]);  // the adjoint of the gradient in PyTorch's convention
  const Value ph = Adjoint(b, p);
  if (!b.ok()) return b.status();
  Value g;
  if (RowsOf(x) <= ColumnsOf(x)) {
    const Value k = Product(b, gh, p), kph = Product(b, k, ph);
    g = Sub(b, Add(b, kph, Product(b, Product(b, ph, p), Sub(b, gh, Product(b, k, x)))),
            Add(b, Adjoint(b, Product(b, p, k)), Product(b, Product(b, x, p), kph)));
  } else {
    const Value k = Product(b, p, gh), phk = Product(b, ph, k);
    g = Sub(b, Add(b, Product(b, Product(b, Sub(b, gh, Product(b, x, k)), p), ph), phk),
            Add(b, Adjoint(b, Product(b, k, p)), Product(b, Product(b, phk, p), x)));
  }
  grads[0] = hermitian ? OfTriangle(b, Conj(b, g), true) : Conj(b, g);
  return absl::OkStatus();
}

struct LeastSquares {
  Dims a, b;
  Dims batch;
  bool vector = false;
  Dims Of(std::initializer_list<int64_t> dims) const {
    Dims all = batch;
    all.insert(all.end(), dims);
    return all;
  }
};
absl::StatusOr<LeastSquares> LeastSquaresOf(const Type& a, const Type& b) {
  WEFT_RETURN_IF_ERROR(CheckMatrix("a", a));
  WEFT_RETURN_IF_ERROR(CheckSize("a", a));
  if (b.rank() == 0) return UserError("b is ", ShortType(b), "; a vector or matrices are needed");
  LeastSquares found;
  found.vector = b.rank() == 1;
  Dims matrix = b.dims;
  if (found.vector) matrix.push_back(1);
  const int64_t m = a.dims[a.rank() - 2];
  if (matrix[matrix.size() - 2] != m) {
    return UserError("a has ", m, " rows, and b, ", ShortType(b), ", has ", matrix[matrix.size() - 2],
                     "; they must be equal");
  }
  WEFT_ASSIGN_OR_RETURN(
      found.batch, BroadcastDims(std::span(a.dims).first(a.rank() - 2), std::span(matrix).first(matrix.size() - 2)));
  found.a = found.Of({m, a.dims.back()});
  found.b = found.Of({m, matrix.back()});
  if (!CheckedCount(found.a) || !CheckedCount(found.b)) return UserError("the equations have too many elements");
  return found;
}
absl::Status InferLeast(const InferCall& call, Types* results) {
  const Type &a = *call.operands[0], &b = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const LeastSquares e, LeastSquaresOf(a, b));
  WEFT_RETURN_IF_ERROR(CheckTolerance(call.attrs));
  const int64_t m = e.a[e.a.size() - 2], n = e.a.back(), k = e.b.back();
  const DType real = PartOf(a.dtype);
  results->push_back(Type::Tensor(a.dtype, e.vector ? e.Of({n}) : e.Of({n, k})));
  results->push_back(Type::Tensor(real, e.vector ? e.batch : e.Of({k})));
  results->push_back(Type::Tensor(DType::kI32, e.batch));
  results->push_back(Type::Tensor(real, e.Of({std::min(m, n)})));
  if (!CheckedCount(results->front().dims)) return UserError("the solution has too many elements");
  return absl::OkStatus();
}
absl::Status ExpandLeast(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const LeastSquares e, LeastSquaresOf(call.operands[0].type(), call.operands[1].type()));
  const Value a = BroadcastTo(b, call.operands[0], e.a), right = AsMatrices(b, call.operands[1], e.b);
  if (!a || !right) return b.status();
  const double rtol = ToleranceOf(call.attrs, a);
  const Value x = Product(b, Call(b, kOp_pinv, {a}, {rtol}), right), off = Sub(b, Product(b, a, x), right);
  const Value s = Call(b, kOp_svdvals, {a});
  if (!b.ok()) return b.status();
  const auto last = static_cast<int64_t>(s.dims().size()) - 1;
  const int64_t n = ColumnsOf(a), k = ColumnsOf(right);
  Value squares = Square(b, RealPart(b, off));
  if (IsComplex(off.dtype())) squares = Add(b, squares, Square(b, Unary(b, kOp_imag, off)));
  const Value sums = Reduce(b, squares, Reducer::kSum, {last});
  if (!sums) return b.status();
  results[0] = Reshape(b, x, e.vector ? e.Of({n}) : e.Of({n, k}));
  results[1] = Reshape(b, sums, e.vector ? e.batch : e.Of({k}));
  results[2] = s.dims().back() == 0 ? Full(b, DType::kI32, e.batch, 0)
                                    : Reduce(b, Convert(b, Counts(b, s, rtol), DType::kI32), Reducer::kSum, {last});
  results[3] = s;
  return b.status();
}

// --- Of tensors

absl::StatusOr<int64_t> TensorSize(const Type& a, const Type& b) {
  if (b.rank() >= a.rank() || !std::equal(b.dims.begin(), b.dims.end(), a.dims.begin())) {
    return UserError("a is ", ShortType(a), " and b ", ShortType(b),
                     "; a begins with b's dimensions and has others behind them");
  }
  const int64_t size = CountOf(b.dims), others = CountOf(std::span(a.dims).subspan(b.rank()));
  if (size != others) return UserError("a has ", size, " rows and ", others, " columns; they must be equal");
  if (size > linalg::kMostRows) return UserError("a has ", size, " rows; at most ", linalg::kMostRows, " can be");
  return size;
}
absl::Status InferTensor(const InferCall& call, Types* results) {
  const Type &a = *call.operands[0], &b = *call.operands[1];
  WEFT_RETURN_IF_ERROR(TensorSize(a, b).status());
  results->push_back(Type::Tensor(a.dtype, Dims(a.dims.begin() + static_cast<ptrdiff_t>(b.rank()), a.dims.end())));
  return absl::OkStatus();
}
absl::Status ExpandTensor(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &a = call.operands[0], &right = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const int64_t size, TensorSize(a.type(), right.type()));
  const Value x = SolveSquare(b, Reshape(b, a, {size, size}), Reshape(b, right, {size, 1}), false);
  results[0] =
      x ? Reshape(b, x, Dims(a.dims().begin() + static_cast<ptrdiff_t>(right.dims().size()), a.dims().end())) : x;
  return b.status();
}
absl::StatusOr<Dims> InverseDims(const Attrs& attrs, const Type& a) {
  const int64_t ind = Attr<kIndexAttrs, "ind">(attrs);
  if (ind < 1 || ind >= static_cast<int64_t>(a.rank())) {
    return UserError("ind is ", ind, "; of a with ", a.rank(), " dimensions it is 1 to ",
                     static_cast<int64_t>(a.rank()) - 1);
  }
  const auto middle = a.dims.begin() + static_cast<ptrdiff_t>(ind);
  const int64_t size = CountOf(std::span(a.dims).first(static_cast<size_t>(ind)));
  const int64_t others = CountOf(std::span(a.dims).subspan(static_cast<size_t>(ind)));
  if (size != others) return UserError("a has ", size, " rows and ", others, " columns; they must be equal");
  if (size > linalg::kMostRows) return UserError("a has ", size, " rows; at most ", linalg::kMostRows, " can be");
  Dims dims(middle, a.dims.end());
  dims.insert(dims.end(), a.dims.begin(), middle);
  return dims;
}
absl::Status InferTensorInverse(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, InverseDims(call.attrs, *call.operands[0]));
  results->push_back(Type::Tensor(call.operands[0]->dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandTensorInverse(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& a = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Dims dims, InverseDims(call.attrs, a.type()));
  const int64_t size = CountOf(std::span(a.dims()).first(static_cast<size_t>(Attr<kIndexAttrs, "ind">(call.attrs))));
  const Value matrix = Reshape(b, a, {size, size});
  const Value inverse = SolveSquare(b, matrix, IdentityLike(b, matrix), false);
  results[0] = inverse ? Reshape(b, inverse, dims) : inverse;
  return b.status();
}

constexpr Sample kSquares[] = {{"T[3,3]<dominant> T[3,2]"},
                               {"T[2,4,4]<dominant> T[2,4,1] transpose=true"},
                               {"T[0,0] T[0,2]"},
                               {"T[2,2]<dominant> T[2,0]"},
                               {"T[80,80]<dominant> T[80,3]", -2, 2, false}};
constexpr Sample kSolves[] = {{"T[3,3]<dominant> T[3,2]"},
                              {"T[2,3,3]<dominant> T[3]"},
                              {"T[3,3]<dominant> T[2,3,1]"},
                              {"T[3,3]<dominant> T[2,3] left_side=false"},
                              {"T[2,3,3]<dominant> T[3] left_side=false"},
                              {"T[0,0] T[0]"}};
constexpr Sample kInverses[] = {{"T[3,3]<dominant>"}, {"T[2,2,2]<dominant>"}, {"T[0,0]"}};
constexpr Sample kFactoreds[] = {{"T[3,3]<dominant> T[3,2]"},
                                 {"T[2,3,3]<dominant> T[2,3,1] lower=true"},
                                 {"T[3,3]<dominant> T[2,3,1]"},
                                 {"T[2,3,3]<dominant> T[3]"},
                                 {"T[0,0] T[0,2]"}};
constexpr Sample kFactors[] = {{"T[3,3]<dominant>"}, {"T[2,3,3]<dominant> lower=true"}, {"T[0,0]"}};
constexpr Sample kPinvs[] = {{"T[3,3]<dominant>"},
                             {"T[2,4,2]", -2, 2, false},
                             {"T[2,4]", -2, 2, false},
                             {"T[0,3]"},
                             {"T[3,3]<dominant> hermitian=true", -2, 2, false},
                             {"T[3,3]<dominant> atol=0.1"}};
constexpr Sample kLeasts[] = {{"T[4,2] T[4,3]", -2, 2, false},
                              {"T[2,2,4] T[2]", -2, 2, false},
                              {"T[3,3]<dominant> T[2,3,1]", -2, 2, false},
                              {"T[1,1] T[1]", 0.5, 2},
                              {"T[0,2] T[0,1]"}};
constexpr Sample kTensorSolves[] = {
    {"T[2,3,6] T[2,3]", -2, 2, false}, {"T[4,2,2] T[4]", -2, 2, false}, {"T[1,1] T[1]", 0.5, 2}};
constexpr Sample kTensorInverses[] = {
    {"T[2,3,6]", -2, 2, false}, {"T[4,2,2] ind=1", -2, 2, false}, {"T[1,1,1]", 0.5, 2}};
constexpr Absent kInternal[] = {{Part::kReference, Reason::kExpands},
                                {Part::kStableHlo, Reason::kExpands},
                                {Part::kExample, Reason::kMovedByExpansionOf}};

}  // namespace

constinit const OpDef kOp_solve_square = Internal({
    .name = "weft.solve_square",
    .c_name = "solve_square",
    .doc = "The solution of a x = b, or of a's transpose, as solve has it, for matrices of equal leading dimensions.",
    .operands = kSquareEquations,
    .attrs = kTransposeAttrs,
    .infer = InferSquare,
    .gradient = GradientSquare,
    .expand = ExpandSquare,
    .samples = kSquares,
    .tolerance = kFactorTolerance,
    .absent = kInternal,
});
constinit const OpDef kOp_solve = Formula({
    .name = "weft.solve",
    .c_name = "solve",
    .doc =
        "Solves a x = b, or x a = b, for x, by LU decomposition with partial pivoting. Leading dimensions broadcast; b is a vector only "
        "where it has one dimension. Where a has no inverse the results are infinite or NaN. f16 and bf16 are computed in f32.",
    .example = "x = wf_solve(s, a, b);",
    .operands = kEquations,
    .attrs = kSideAttrs,
    .infer = InferSolve,
    .expand = ExpandSolve,
    .samples = kSolves,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_inv = Formula({
    .name = "weft.inv",
    .c_name = "inv",
    .doc = "The inverses of square matrices, by LU decomposition. A matrix without one gives infinities and NaN.",
    .example = "y = wf_inv(s, a);",
    .operands = kSquareOperands,
    .infer = InferInverse,
    .expand = ExpandInverse,
    .samples = kInverses,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_cholesky_solve = Formula({
    .name = "weft.cholesky_solve",
    .c_name = "cholesky_solve",
    .doc =
        "Solves a x = b for x, given cholesky's factor of a. Leading dimensions broadcast; b is a vector only where it has one dimension.",
    .example = "x = wf_cholesky_solve(s, wf_cholesky(s, a), b);",
    .operands = kFactored,
    .attrs = kLowerAttrs,
    .infer = InferFactored,
    .expand = ExpandFactored,
    .samples = kFactoreds,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_cholesky_inverse = Formula({
    .name = "weft.cholesky_inverse",
    .c_name = "cholesky_inverse",
    .doc = "The inverse of a, given cholesky's factor of it.",
    .example = "y = wf_cholesky_inverse(s, wf_cholesky(s, a));",
    .operands = kFactor,
    .attrs = kLowerAttrs,
    .infer = InferFactor,
    .expand = ExpandFactor,
    .samples = kFactors,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_pinv = Decomposition({
    .name = "weft.pinv",
    .c_name = "pinv",
    .doc =
        "The pseudo-inverses of matrices, after Moore and Penrose, by their singular values. The gradient is that of a rank which stays.",
    .example = "y = wf_pinv(s, a);",
    .operands = kMatrixOperands,
    .attrs = kPinvAttrs,
    .infer = InferPinv,
    .gradient = GradientPinv,
    .expand = ExpandPinv,
    .samples = kPinvs,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_lstsq = Formula({
    .name = "weft.lstsq",
    .c_name = "lstsq",
    .doc =
        "The x of least length that makes a x - b shortest, by a's singular values; the squared lengths of a x - b, for each column of "
        "b; a's rank; its singular values. Leading dimensions broadcast; b is a vector only where it has one dimension.",
    .example = "f = wf_lstsq(s, a, b);",
    .operands = kLeast,
    .attrs = kToleranceAttrs,
    .results = kLeastResults,
    .infer = InferLeast,
    .expand = ExpandLeast,
    .samples = kLeasts,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_tensorsolve = Formula({
    .name = "weft.tensorsolve",
    .c_name = "tensorsolve",
    .doc = "Solves the equations b = Σ a x for the tensor x, the sum being over all dimensions of a behind those of b.",
    .example = "x = wf_tensorsolve(s, a, b);",
    .operands = kTensors,
    .infer = InferTensor,
    .expand = ExpandTensor,
    .samples = kTensorSolves,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_tensorinv = Formula({
    .name = "weft.tensorinv",
    .c_name = "tensorinv",
    .doc =
        "The inverse of a as a map from tensors of its last dimensions to tensors of its first ones: their places are exchanged.",
    .example = "y = wf_tensorinv(s, a);",
    .operands = kTensor,
    .attrs = kIndexAttrs,
    .infer = InferTensorInverse,
    .expand = ExpandTensorInverse,
    .samples = kTensorInverses,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
