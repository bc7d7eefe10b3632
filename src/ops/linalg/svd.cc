// svd and svdvals: singular values of matrices, and their vectors.
#include <algorithm>

#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kResults[] = {"u", "s", "vh"};
constexpr AttrDef kAttrs[] = {{"full_matrices", AttrType::kBool,
                               "u and vh are square; else they have as many vectors as there are values", false,
                               "false"}};

absl::Status InferValues(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  results->push_back(Stacked(x, PartOf(x.dtype), {std::min(x.dims[x.rank() - 2], x.dims.back())}));
  return absl::OkStatus();
}
absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  Types values;
  WEFT_RETURN_IF_ERROR(InferValues(call, &values));
  const int64_t m = x.dims[x.rank() - 2], n = x.dims.back(), k = std::min(m, n);
  const bool full = Attr<kAttrs, "full_matrices">(call.attrs);
  const Type u = Stacked(x, x.dtype, {m, full ? m : k}), vh = Stacked(x, x.dtype, {full ? n : k, n});
  if (!CheckedCount(u.dims) || !CheckedCount(vh.dims)) return UserError("the vectors have too many elements");
  *results = {u, values[0], vh};
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const int64_t mode = Attr<kAttrs, "full_matrices">(call.attrs) ? linalg::kFull : 0;
  const Values found = Factors(call.b, linalg::Kind::kSvd, mode, call.operands.first(1));
  if (!call.b.ok()) return call.b.status();
  results[0] = found[1];
  results[1] = found[0];
  results[2] = found[2];
  return absl::OkStatus();
}
absl::Status ExpandValues(const ExpandCall& call, std::span<Value> results) {
  std::ranges::move(Factors(call.b, linalg::Kind::kSvd, linalg::kValuesOnly, call.operands.first(1)), results.begin());
  return call.b.status();
}

// Cotangents in PyTorch's convention; empty ones are zero.
struct Thin {
  Value u, s, vh, gu, gs, gvh;
};

// u (skew(u^H gu) / e s + s skew(v^H gv) / e + diag(gs)) v^H with e = s_j^2 - s_i^2, and what is outside of the spaces of u and v.
// A complex x turns the phases of u, too. Source: Townsend, Differentiating the singular value decomposition (2016); Wan and Zhang,
// Automatic differentiation for complex valued SVD (2019).
Value OfFactors(Builder& b, const Thin& t, int64_t m, int64_t n) {
  const int64_t k = std::min(m, n);
  const DType dtype = t.u.dtype();
  const auto skew = [&](const Value& x) { return Sub(b, x, Adjoint(b, x)); };
  Value inner = t.gs ? As(b, DiagonalMatrix(b, t.gs), dtype) : Value();
  if (t.gu || t.gvh) {
    const Value square = Square(b, t.s);
    Dims dims = t.s.dims();
    dims.push_back(k);
    const Value apart = WithoutDiagonal(b, Sub(b, Rows(b, square, dims), Columns(b, square, dims)), 1);
    const Value slopes = As(b, WithoutDiagonal(b, Div(b, 1, apart)), dtype);
    if (t.gu) {
      const Value turned = skew(Product(b, Adjoint(b, t.u), t.gu));
      inner = Sum(b, inner, TimesColumns(b, Mul(b, turned, slopes), t.s));
      if (IsComplex(dtype)) {
        const Value phases = Mul(b, Diagonal(b, turned), As(b, Div(b, 0.5, t.s), dtype));
        inner = Sum(b, inner, DiagonalMatrix(b, phases));
      }
    }
    if (t.gvh) inner = Sum(b, inner, TimesRows(b, Mul(b, skew(Product(b, t.vh, Adjoint(b, t.gvh))), slopes), t.s));
  }
  if (!inner) return {};
  Value found = Product(b, Product(b, t.u, inner), t.vh);
  const Value inverse = Div(b, 1, t.s);
  if (m > n && t.gu) {
    const Value scaled = TimesColumns(b, t.gu, inverse);
    const Value outside = Sub(b, scaled, Product(b, t.u, Product(b, Adjoint(b, t.u), scaled)));
    found = Sum(b, found, Product(b, outside, t.vh));
  }
  if (m < n && t.gvh) {
    const Value scaled = TimesRows(b, t.gvh, inverse);
    const Value outside = Sub(b, scaled, Product(b, Product(b, scaled, Adjoint(b, t.vh)), t.vh));
    found = Sum(b, found, Product(b, t.u, outside));
  }
  return found;
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &u = call.results[0], &vh = call.results[2];
  const int64_t m = RowsOf(x), n = ColumnsOf(x), k = std::min(m, n);
  if (k == 0 || x.type().count() == 0) {
    grads[0] = FullLike(b, x, 0);
    return absl::OkStatus();
  }
  if ((call.cotangents[0] && ColumnsOf(u) > k) || (call.cotangents[2] && RowsOf(vh) > k)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "vectors beyond the ", k,
                       " singular values are free to turn: with "
                       "full_matrices the gradient of them does not exist");
  }
  const Thin thin{FirstColumns(b, u, k),       call.results[1],    FirstRows(b, vh, k),
                  Conj(b, call.cotangents[0]), call.cotangents[1], Conj(b, call.cotangents[2])};
  grads[0] = Conj(b, OfFactors(b, thin, m, n));
  return absl::OkStatus();
}
absl::Status GradientOfValues(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Values found = CallAll(b, kOp_svd, {x}, {int64_t{0}});
  if (!b.ok()) return b.status();
  const Thin thin{found[0], found[1], found[2], {}, call.cotangents[0], {}};
  grads[0] = x.type().count() == 0 ? FullLike(b, x, 0) : Conj(b, OfFactors(b, thin, RowsOf(x), ColumnsOf(x)));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,4]", -2, 2, false},
                               {"T[2,4,3]", -2, 2, false},
                               {"T[3,5]", -2, 2, false},
                               {"T[1,1]", 0.5, 2},
                               {"T[0,3]"},
                               {"T[2,0,2,2]"},
                               {"c128[3,2]"},
                               {"T[40,30]", -2, 2, false}};
constexpr Sample kVectorSamples[] = {{"T[4,4] full_matrices=true", -2, 2, false},
                                     {"T[2,4,3]", -2, 2, false},
                                     {"T[3,5]", -2, 2, false},
                                     {"T[1,1]", 0.5, 2},
                                     {"T[0,3]"},
                                     {"T[2,0,2,2]"},
                                     {"T[3,0] full_matrices=true"},
                                     {"T[5,3] full_matrices=true", -2, 2, false},
                                     {"c128[3,2]"},
                                     {"T[40,30]", -2, 2, false}};

}  // namespace

constinit const OpDef kOp_svd = Decomposition({
    .name = "weft.svd",
    .c_name = "svd",
    .doc =
        "The singular value decomposition of matrices, x = u diag(s) vh: s in descending order, u's columns and vh's rows "
        "orthonormal. Vectors are what LAPACK's gesdd gives: a pair's sign, or its factor of modulus 1, is its to choose. A matrix "
        "with an element that is not finite has NaN everywhere. f16 and bf16 are computed in f32. The gradient of vectors is "
        "infinite or NaN where singular values are equal, and does not exist for those that full_matrices adds.",
    .example = "f = wf_svd(s, a);",
    .operands = kMatrixOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .samples = kVectorSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_svdvals = Decomposition({
    .name = "weft.svdvals",
    .c_name = "svdvals",
    .doc = "The singular values of matrices, in descending order.",
    .example = "v = wf_svdvals(s, a);",
    .operands = kMatrixOperands,
    .infer = InferValues,
    .gradient = GradientOfValues,
    .expand = ExpandValues,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
