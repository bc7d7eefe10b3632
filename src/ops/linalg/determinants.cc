// det, slogdet, matrix_rank, matrix_norm, cond: single numbers of matrices.
#include <algorithm>
#include <cmath>

#include "src/ops/elementwise/special.h"
#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kSignResults[] = {"sign", "logabsdet"};
constexpr std::string_view kNorms[] = {"p", "fro", "nuc"};
constexpr AttrDef kRankAttrs[] = {
    {"rtol", AttrType::kDouble,
     "singular values up to this part of the largest count as 0; absent: the unit roundoff times the larger dimension, or 0 where atol is given"},
    {"atol", AttrType::kDouble, "singular values up to this count as 0, too", false, "0"},
    {"hermitian", AttrType::kBool, "x is hermitian, and its lower triangle is read", false, "false"}};
#define WEFT_NORM_ATTRS(which, p)                                                                                     \
  {                                                                                                                   \
    {                                                                                                                 \
        "kind", AttrType::kEnum, "the norm of degree p, Frobenius's, or the sum of singular values",                  \
        false,  which,           kNorms},                                                                             \
    {                                                                                                                 \
      "p", AttrType::kDouble,                                                                                         \
          "2: largest singular value; 1: largest column sum; inf: largest row sum; -2, -1, -inf: the least of these", \
          false, p                                                                                                    \
    }                                                                                                                 \
  }
constexpr AttrDef kNormAttrs[] = WEFT_NORM_ATTRS("fro", "2");
constexpr AttrDef kCondAttrs[] = WEFT_NORM_ATTRS("p", "2");
#undef WEFT_NORM_ATTRS
enum : int64_t { kDegree, kFrobenius, kNuclear };

absl::Status InferDet(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSquare("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  results->push_back(Stacked(x, x.dtype, {}));
  return absl::OkStatus();
}

int64_t LastOf(const Value& x) { return static_cast<int64_t>(x.dims().size()) - 1; }

// 1 or -1 for the rows' order, in x's type.
Value Parity(Builder& b, const Value& pivots, DType dtype) {
  if (!pivots) return {};
  const Dims& dims = pivots.dims();
  const Value moved = Compare(b, Direction::kNe, pivots, Iota(b, DType::kI32, dims, LastOf(pivots)));
  const Value signs = Select(b, moved, Full(b, dtype, dims, -1), Full(b, dtype, dims, 1));
  return signs ? Reduce(b, signs, Reducer::kProd, {LastOf(signs)}) : signs;
}
Value ProductOf(Builder& b, const Value& v) { return v ? Reduce(b, v, Reducer::kProd, {LastOf(v)}) : v; }

absl::Status ExpandDet(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Values found = CallAll(b, kOp_lu, {call.operands[0]});
  if (!b.ok()) return b.status();
  results[0] = Mul(b, Parity(b, found[1], call.operands[0].dtype()), ProductOf(b, Diagonal(b, found[0])));
  return b.status();
}
// The cofactors, det x x^-T. Where a pivot is 0 one that does not count takes its place, so that those of rank n - 1 are right and
// those of a smaller one 0.
absl::Status GradientDet(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  if (x.type().count() == 0) {
    grads[0] = FullLike(b, x, 0);
    return absl::OkStatus();
  }
  if (x.dims().back() == 1) {
    grads[0] = Reshape(b, call.cotangents[0], x.dims());
    return absl::OkStatus();
  }
  const Values found = CallAll(b, kOp_lu, {x});
  if (!b.ok()) return b.status();
  const Value &lu = found[0], pivots = Diagonal(b, lu), sizes = Abs(b, pivots);
  const Value largest = ReduceKeep(b, sizes, Reducer::kMax, {LastOf(sizes)});
  if (!largest) return b.status();
  const Value tiny = Maximum(b, Mul(b, largest, Epsilon(x.dtype())), FullLike(b, largest, Epsilon(x.dtype()) * 1e-30));
  const Value zero = Compare(b, Direction::kEq, sizes, 0);
  const Value safe = Select(b, zero, As(b, BroadcastTo(b, tiny, sizes.dims()), x.dtype()), pivots);
  const Value regular = Add(b, lu, DiagonalMatrix(b, Sub(b, safe, pivots)));
  const Value det = Mul(b, Parity(b, found[1], x.dtype()), ProductOf(b, safe));
  if (!b.ok()) return b.status();
  // x^-T = p^T l^-T u^-T
  const Value inverse = TriangularSolve(b, regular, IdentityLike(b, lu), true, false, false, true);
  const Value cofactors = PutRows(b, TriangularSolve(b, regular, inverse, true, true, true, true), found[2]);
  const Value scale = Mul(b, call.cotangents[0], det);
  grads[0] =
      cofactors && scale ? Mul(b, cofactors, BroadcastInDim(b, scale, x.dims(), Axes(scale.dims().size()))) : cofactors;
  return b.status();
}

absl::Status InferSign(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferDet(call, results));
  results->push_back(Type::Tensor(PartOf(call.operands[0]->dtype), results->front().dims));
  return absl::OkStatus();
}
absl::Status ExpandSign(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Values found = CallAll(b, kOp_lu, {call.operands[0]});
  if (!b.ok()) return b.status();
  const Value pivots = Diagonal(b, found[0]);
  results[0] = Mul(b, Parity(b, found[1], pivots.dtype()), ProductOf(b, Unary(b, kOp_sign, pivots)));
  const Value logs = Log(b, Abs(b, pivots));
  results[1] = logs ? Reduce(b, logs, Reducer::kSum, {LastOf(logs)}) : logs;
  return b.status();
}

absl::Status InferRank(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const bool hermitian = Attr<kRankAttrs, "hermitian">(call.attrs);
  WEFT_RETURN_IF_ERROR(hermitian ? CheckSquare("x", x) : CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  for (size_t i = 0; i < 2; ++i) {
    if (call.attrs.has(i) && !(call.attrs.Double(i) >= 0)) {
      return UserError(kRankAttrs[i].name, " is ", call.attrs.Double(i), "; it must be at least 0");
    }
  }
  results->push_back(Stacked(x, DType::kI32, {}));
  return absl::OkStatus();
}
absl::Status ExpandRank(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value s = Attr<kRankAttrs, "hermitian">(call.attrs) ? Abs(b, Call(b, kOp_eigvalsh, {x}, {int64_t{1}}))
                                                            : Call(b, kOp_svdvals, {x});
  if (!s) return b.status();
  if (s.dims().back() == 0) {
    results[0] = Full(b, DType::kI32, Stacked(x.type(), DType::kI32, {}).dims, 0);
    return b.status();
  }
  const double atol = Attr<kRankAttrs, "atol">(call.attrs);
  const double usual = atol > 0 ? 0 : Epsilon(x.dtype()) * static_cast<double>(std::max(RowsOf(x), ColumnsOf(x)));
  const double rtol = HasAttr<kRankAttrs, "rtol">(call.attrs) ? Attr<kRankAttrs, "rtol">(call.attrs) : usual;
  const Value largest = Mul(b, ReduceKeep(b, s, Reducer::kMax, {LastOf(s)}), rtol);
  const Value least = Maximum(b, largest, FullLike(b, largest, atol));
  if (!least) return b.status();
  const Value counts = Compare(b, Direction::kGt, s, BroadcastTo(b, least, s.dims()));
  results[0] = Reduce(b, Convert(b, counts, DType::kI32), Reducer::kSum, {LastOf(s)});
  return b.status();
}

absl::Status CheckNorm(const InferCall& call, const AttrDef* attrs) {
  const double p = call.attrs.Double(1);
  if (call.attrs.Int(0) == kDegree && std::fabs(p) != 1 && std::fabs(p) != 2 && !std::isinf(p)) {
    return UserError(attrs[1].name, " is ", p, "; it must be 1, 2, inf, -1, -2 or -inf");
  }
  return absl::OkStatus();
}
absl::Status InferNorm(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckNorm(call, kNormAttrs));
  const int64_t rows = x.dims[x.rank() - 2], columns = x.dims.back();
  if (call.attrs.Int(0) != kFrobenius) {
    WEFT_RETURN_IF_ERROR(CheckSize("x", x));
    // The largest of no sums or singular values is 0; there is no smallest.
    const double p = call.attrs.Double(1);
    const int64_t count = p == -1 ? columns : p == -2 ? std::min(rows, columns) : rows;
    if (call.attrs.Int(0) == kDegree && p < 0 && count == 0) {
      return UserError("x is ", ShortType(x), "; there is no smallest number for a norm of degree ", p);
    }
  }
  results->push_back(Stacked(x, PartOf(x.dtype), {}));
  return absl::OkStatus();
}
Value NormOf(Builder& b, const Value& x, int64_t kind, double p) {
  if (!x) return {};
  const int64_t last = LastOf(x);
  if (kind == kFrobenius) return Call(b, kOp_norm, {x}, {Ints{last - 1, last}, int64_t{0}, 2.0});
  const Reducer extreme = p > 0 ? Reducer::kMax : Reducer::kMin;
  if (kind == kNuclear || std::fabs(p) == 2) {
    const Value s = Call(b, kOp_svdvals, {x});
    return s ? Reduce(b, s, kind == kNuclear ? Reducer::kSum : extreme, {LastOf(s)}) : s;
  }
  const Value sums = Reduce(b, Abs(b, x), Reducer::kSum, {std::isinf(p) ? last : last - 1});
  return sums ? Reduce(b, sums, extreme, {LastOf(sums)}) : sums;
}
absl::Status ExpandNorm(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  const bool empty = call.attrs.Int(0) == kDegree && (RowsOf(x) == 0 || ColumnsOf(x) == 0);
  results[0] = empty ? Full(call.b, PartOf(x.dtype()), Stacked(x.type(), x.dtype(), {}).dims, 0)
                     : NormOf(call.b, x, call.attrs.Int(0), call.attrs.Double(1));
  return call.b.status();
}

absl::Status InferCond(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckNorm(call, kCondAttrs));
  const bool values = call.attrs.Int(0) == kDegree && std::fabs(call.attrs.Double(1)) == 2;
  WEFT_RETURN_IF_ERROR(values ? CheckMatrix("x", x) : CheckSquare("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  if (x.dims[x.rank() - 2] == 0 || x.dims.back() == 0)
    return UserError("x is ", ShortType(x), "; it must have elements");
  results->push_back(Stacked(x, PartOf(x.dtype), {}));
  return absl::OkStatus();
}
absl::Status ExpandCond(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t kind = call.attrs.Int(0);
  const double p = call.attrs.Double(1);
  if (kind == kDegree && std::fabs(p) == 2) {
    const Value s = Call(b, kOp_svdvals, {x});
    if (!s) return b.status();
    const Value most = Reduce(b, s, Reducer::kMax, {LastOf(s)}), least = Reduce(b, s, Reducer::kMin, {LastOf(s)});
    results[0] = p > 0 ? Div(b, most, least) : Div(b, least, most);
    return b.status();
  }
  results[0] = Mul(b, NormOf(b, x, kind, p), NormOf(b, Call(b, kOp_inv, {x}), kind, p));
  return b.status();
}

constexpr Sample kDets[] = {{"T[3,3]<dominant>"}, {"T[2,2,2]", -2, 2, false}, {"T[1,1]"}, {"T[0,0]"}, {"T[2,0,0]"}};
constexpr Sample kSigns[] = {{"T[3,3]<dominant>"}, {"T[2,2,2]<dominant>"}, {"T[0,0]"}};
constexpr Sample kRanks[] = {
    {"T[3,3]<dominant>"}, {"T[2,2,4]"}, {"T[0,3]"}, {"T[3,3]<dominant> hermitian=true"}, {"T[3,3] atol=0.5"}};
constexpr Sample kNormSamples[] = {{"T[3,2]"},
                                   {"T[2,3,3] kind=nuc", -2, 2, false},
                                   {"T[3,4] kind=p p=2", -2, 2, false},
                                   {"T[3,2] kind=p p=1", -2, 2, false},
                                   {"T[2,3] kind=p p=inf", 0.5, 2, false},
                                   {"T[2,3] kind=p p=-1", 0.5, 2, false},
                                   {"T[0,3]"}};
constexpr Sample kConds[] = {{"T[3,3]<dominant>", -2, 2, false},
                             {"T[2,3] p=-2", -2, 2, false},
                             {"T[2,2,2]<dominant> kind=fro"},
                             {"T[2,2]<dominant> p=1", 0.5, 2, false}};

}  // namespace

constinit const OpDef kOp_det = Decomposition({
    .name = "weft.det",
    .c_name = "det",
    .doc =
        "The determinants of square matrices, by LU decomposition; of no rows it is 1. The gradient is right where the determinant is 0, "
        "too; that of the gradient is NaN there.",
    .example = "y = wf_det(s, a);",
    .operands = kSquareOperands,
    .infer = InferDet,
    .gradient = GradientDet,
    .expand = ExpandDet,
    .samples = kDets,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_slogdet = Formula({
    .name = "weft.slogdet",
    .c_name = "slogdet",
    .doc =
        "The determinants of square matrices as sign and logarithm of the size, neither of which overflows: det = sign exp(logabsdet). "
        "Where the determinant is 0, so is the sign, and the logarithm is -inf.",
    .example = "f = wf_slogdet(s, a);",
    .operands = kSquareOperands,
    .results = kSignResults,
    .infer = InferSign,
    .expand = ExpandSign,
    .samples = kSigns,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_matrix_rank = Formula({
    .name = "weft.matrix_rank",
    .c_name = "matrix_rank",
    .doc =
        "How many singular values of each matrix are above a tolerance, the larger one of atol and rtol times the largest value, as i32.",
    .example = "n = wf_matrix_rank(s, a);",
    .operands = kMatrixOperands,
    .attrs = kRankAttrs,
    .infer = InferRank,
    .expand = ExpandRank,
    .samples = kRanks,
    .tolerance = kFactorTolerance,
    .absent = kMacroNoGradient,
});
constinit const OpDef kOp_matrix_norm = Formula({
    .name = "weft.matrix_norm",
    .c_name = "matrix_norm",
    .doc =
        "Norms of the matrices in the last two dimensions: Frobenius's, the sum of singular values, or that of degree p.",
    .example = "n = wf_matrix_norm(s, a);",
    .operands = kMatrixOperands,
    .attrs = kNormAttrs,
    .infer = InferNorm,
    .expand = ExpandNorm,
    .samples = kNormSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_cond = Formula({
    .name = "weft.cond",
    .c_name = "cond",
    .doc =
        "The condition numbers of matrices: a norm of the matrix times that of its inverse; for p = 2 and -2 the ratio of the extreme "
        "singular values, of matrices that are not square, too. A matrix without an inverse has an infinite or NaN one.",
    .example = "n = wf_cond(s, a);",
    .operands = kMatrixOperands,
    .attrs = kCondAttrs,
    .infer = InferCond,
    .expand = ExpandCond,
    .samples = kConds,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
