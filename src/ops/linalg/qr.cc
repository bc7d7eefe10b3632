// qr: matrices as a product of one with orthonormal columns and a triangle.
#include <algorithm>

#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kResults[] = {"q", "r"};
constexpr AttrDef kAttrs[] = {{"full_matrices", AttrType::kBool,
                               "q is square; else it has as many columns as x's smaller dimension", false, "false"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  const int64_t m = x.dims[x.rank() - 2], n = x.dims.back();
  const int64_t columns = Attr<kAttrs, "full_matrices">(call.attrs) ? m : std::min(m, n);
  for (const auto& [rows, wide] : {std::pair(m, columns), std::pair(columns, n)}) {
    results->push_back(Stacked(x, x.dtype, {rows, wide}));
    if (!CheckedCount(results->back().dims)) return UserError("q has too many elements");
  }
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const int64_t mode = Attr<kAttrs, "full_matrices">(call.attrs) ? linalg::kFull : 0;
  std::ranges::move(Factors(call.b, linalg::Kind::kQr, mode, call.operands.first(1)), results.begin());
  return call.b.status();
}

// PyTorch's rule for as many rows as columns or more: [gq + q h] r^-H, where h is the hermitian matrix whose upper triangle is
// that of gr r^H - q^H gq. Source: Walter, Lehmann and Lamour, On evaluating higher-order derivatives of the QR decomposition of
// tall matrices with full column rank (2012).
Value OfTall(Builder& b, const Value& q, const Value& r, const Value& gq, const Value& gr) {
  const Value of_r = gr ? Product(b, gr, Adjoint(b, r)) : Value();
  const Value of_q = gq ? Neg(b, Product(b, Adjoint(b, q), gq)) : Value();
  const Value inner = Sum(b, of_r, of_q), strict = Triangle(b, inner, false, true);
  if (!b.ok()) return {};
  const Value diagonal = DiagonalMatrix(b, As(b, RealPart(b, Diagonal(b, inner)), inner.dtype()));
  const Value hermitian = Add(b, diagonal, Add(b, strict, Adjoint(b, strict)));
  const Value sum = Sum(b, gq, Product(b, q, hermitian));
  return TriangularSolve(b, Conj(b, r), sum, /*left_side=*/false, false, false, /*transpose=*/true);
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &q = call.results[0], &r = call.results[1];
  const Value gq = Conj(b, call.cotangents[0]), gr = Conj(b, call.cotangents[1]);
  const int64_t m = RowsOf(x), n = ColumnsOf(x);
  if (x.type().count() == 0) {
    grads[0] = FullLike(b, x, 0);
    return absl::OkStatus();
  }
  if (Attr<kAttrs, "full_matrices">(call.node.attrs()) && m > n) {
    return UserErrorOf(absl::StatusCode::kUnimplemented,
                       "columns of q beyond those of x are free to turn: with full_matrices the "
                       "gradient of matrices with more rows than columns does not exist");
  }
  if (m >= n) {
    grads[0] = Conj(b, OfTall(b, q, r, gq, gr));
    return absl::OkStatus();
  }
  // x = [x1 x2], q r1 = x1 is square, and r2 = q^H x2.
  const auto last = static_cast<int64_t>(x.dims().size()) - 1;
  const auto right = [&](const Value& v) {  // the columns from m on
    if (!v) return Value();
    Ints start(v.dims().size(), 0);
    start.back() = m;
    return Slice(b, v, start, ToInts(v.dims()), Ints(start.size(), 1));
  };
  const Value gr2 = right(gr);
  const Value gq1 = gr2 ? Sum(b, gq, Product(b, right(x), Adjoint(b, gr2))) : gq;
  const Value gx1 = OfTall(b, q, FirstColumns(b, r, m), gq1, gr ? FirstColumns(b, gr, m) : Value());
  const Value gx2 = gr2 ? Product(b, q, gr2) : FullLike(b, right(x), 0);
  grads[0] = Conj(b, Call(b, kOp_concatenate, {gx1, gx2}, {last}));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,4]<dominant>"},
                               {"T[2,5,3]", -2, 2, false},
                               {"T[3,5]", -2, 2, false},
                               {"T[1,1]", 0.5, 2},
                               {"T[0,3]"},
                               {"T[3,0] full_matrices=true"},
                               {"T[3,4] full_matrices=true", -2, 2, false},
                               {"T[5,2] full_matrices=true", -2, 2, false},
                               {"c128[2,4,3]"},
                               {"T[70,70]<dominant>", -2, 2, false}};

}  // namespace

constinit const OpDef kOp_qr = Decomposition({
    .name = "weft.qr",
    .c_name = "qr",
    .doc =
        "The QR decomposition of matrices by Householder's reflections: x = q r, q with orthonormal columns, r an upper triangle whose "
        "diagonal may have either sign. A matrix with an element that is not finite has NaN everywhere. f16 and bf16 are computed in "
        "f32. The gradient is that of x of full rank; with full_matrices there is none where x has more rows than columns.",
    .example = "f = wf_qr(s, a);",
    .operands = kMatrixOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
