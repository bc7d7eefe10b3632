// eigh and eigvalsh: eigenvalues of symmetric and hermitian matrices, and their vectors.
#include <algorithm>

#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kResults[] = {"eigenvalues", "eigenvectors"};
constexpr AttrDef kAttrs[] = {{"lower", AttrType::kBool, "read the lower triangle; else the upper one", false, "true"}};

template <bool vectors>
absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSquare("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  results->push_back(Stacked(x, PartOf(x.dtype), {x.dims.back()}));
  if (vectors) results->push_back(x);
  return absl::OkStatus();
}

template <bool vectors>
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const int64_t mode = (Attr<kAttrs, "lower">(call.attrs) ? linalg::kLower : 0) | (vectors ? 0 : linalg::kValuesOnly);
  std::ranges::move(Factors(call.b, linalg::Kind::kEigh, mode, call.operands.first(1)), results.begin());
  return call.b.status();
}

// v (diag(gw) + v^H gv / (w_j - w_i)) v^H, on the triangle that is read. Source: Giles, Collected matrix derivative results (2008).
Value OfFactors(Builder& b, const Value& w, const Value& v, const Value& gw, const Value& gv, bool lower) {
  Value inner = gw ? As(b, DiagonalMatrix(b, gw), v.dtype()) : Value();
  if (gv) {
    const Value apart = Sub(b, Rows(b, w, v.dims()), Columns(b, w, v.dims()));
    const Value slopes = WithoutDiagonal(b, Div(b, 1, WithoutDiagonal(b, apart, 1)));
    inner = Sum(b, inner, Mul(b, Product(b, Adjoint(b, v), gv), As(b, slopes, v.dtype())));
  }
  return inner ? OfTriangle(b, Product(b, Product(b, v, inner), Adjoint(b, v)), lower) : Value();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const bool lower = Attr<kAttrs, "lower">(call.node.attrs());
  const Value g =
      OfFactors(b, call.results[0], call.results[1], call.cotangents[0], Conj(b, call.cotangents[1]), lower);
  grads[0] = Conj(b, g);
  return absl::OkStatus();
}
absl::Status GradientOfValues(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const bool lower = Attr<kAttrs, "lower">(call.node.attrs());
  const Values found = CallAll(b, kOp_eigh, {call.operands[0]}, call.node.attrs());
  if (!b.ok()) return b.status();
  grads[0] = Conj(b, OfFactors(b, found[0], found[1], call.cotangents[0], {}, lower));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,4]", -2, 2, false},
                               {"T[2,3,3] lower=false", -2, 2, false},
                               {"T[1,1]", 0.5, 2},
                               {"T[0,0]"},
                               {"T[2,0,2,2]"},
                               {"c128[3,3]"},
                               {"T[40,40]", -2, 2, false}};

}  // namespace

constinit const OpDef kOp_eigh = Decomposition({
    .name = "weft.eigh",
    .c_name = "eigh",
    .doc =
        "Eigenvalues of symmetric or hermitian matrices, in ascending order and real, and their vectors, the columns of a unitary "
        "matrix: x v = v diag(w). Vectors are what LAPACK's syevd and heevd give: their sign, or their factor of modulus 1, is "
        "theirs to choose. A matrix with an element that is not finite has NaN everywhere. f16 and bf16 are computed in f32. The "
        "gradient is that of the triangle which is read; that of vectors is infinite or NaN where eigenvalues are equal.",
    .example = "e = wf_eigh(s, a);",
    .operands = kSquareOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer<true>,
    .gradient = Gradient,
    .expand = Expand<true>,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_eigvalsh = Decomposition({
    .name = "weft.eigvalsh",
    .c_name = "eigvalsh",
    .doc = "The eigenvalues that eigh gives, without their vectors.",
    .example = "w = wf_eigvalsh(s, a);",
    .operands = kSquareOperands,
    .attrs = kAttrs,
    .infer = Infer<false>,
    .gradient = GradientOfValues,
    .expand = Expand<false>,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
