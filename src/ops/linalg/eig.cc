// eig and eigvals: eigenvalues of any square matrices, and their vectors.
#include <algorithm>

#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kResults[] = {"eigenvalues", "eigenvectors"};

DType ComplexLike(DType dtype) { return IsComplex(dtype) ? dtype : ComplexOf(dtype); }

template <bool vectors>
absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSquare("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  const DType dtype = ComplexLike(x.dtype);
  results->push_back(Stacked(x, dtype, {x.dims.back()}));
  if (vectors) results->push_back(Type::Tensor(dtype, x.dims));
  return absl::OkStatus();
}

template <bool vectors>
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const int64_t mode = vectors ? 0 : linalg::kValuesOnly;
  std::ranges::move(Factors(call.b, linalg::Kind::kEig, mode, call.operands.first(1)), results.begin());
  return call.b.status();
}

// v^-H (diag(gw) + (v^H gv - v^H v diag(Re(v^H gv))) / conj(w_j - w_i)) v^H, vectors having length 1. Source: Boeddeker and others,
// On the computation of complex-valued gradients with application to statistically optimum beamforming (2017).
Value OfFactors(Builder& b, const Value& w, const Value& v, const Value& gw, const Value& gv) {
  Value inner = gw ? DiagonalMatrix(b, gw) : Value();
  if (gv) {
    const Value turned = Product(b, Adjoint(b, v), gv);
    const Value lengths = As(b, RealPart(b, Diagonal(b, turned)), v.dtype());
    const Value free = Sub(b, turned, TimesColumns(b, Product(b, Adjoint(b, v), v), lengths));
    const Value apart = Sub(b, Rows(b, w, v.dims()), Columns(b, w, v.dims()));
    inner = Sum(b, inner, WithoutDiagonal(b, Div(b, free, WithoutDiagonal(b, Conj(b, apart), 1))));
  }
  return inner ? SolveSquare(b, Adjoint(b, v), Product(b, inner, Adjoint(b, v)), false) : Value();
}
void Give(Builder& b, const Value& x, const Value& g, std::span<Value> grads) {
  grads[0] = IsComplex(x.dtype()) ? Conj(b, g) : RealPart(b, g);
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value g =
      OfFactors(b, call.results[0], call.results[1], Conj(b, call.cotangents[0]), Conj(b, call.cotangents[1]));
  Give(b, call.operands[0], g, grads);
  return absl::OkStatus();
}
absl::Status GradientOfValues(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Values found = CallAll(b, kOp_eig, {call.operands[0]});
  if (!b.ok()) return b.status();
  Give(b, call.operands[0], OfFactors(b, found[0], found[1], Conj(b, call.cotangents[0]), {}), grads);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"f64[4,4]"}, {"f32[2,3,3]"},   {"bf16[1,1]"}, {"f16[2,2]<dominant>"},
                               {"f64[0,0]"}, {"f32[2,0,2,2]"}, {"c128[3,3]"}, {"f64[40,40]"}};

}  // namespace

constinit const OpDef kOp_eig = Decomposition({
    .name = "weft.eig",
    .c_name = "eig",
    .doc =
        "Eigenvalues of square matrices and their vectors, the columns of v: x v = v diag(w). Both are complex, of real matrices, "
        "too (c64 of f32, f16 and bf16, c128 of f64); their order is LAPACK's. Vectors have length 1 and a real largest element. A "
        "matrix with an element that is not finite has NaN everywhere. The gradient exists where eigenvalues differ; that of "
        "vectors is meant for functions that do not depend on their factors of modulus 1.",
    .example = "e = wf_eig(s, a);",
    .operands = kSquareOperands,
    .results = kResults,
    .infer = Infer<true>,
    .gradient = Gradient,
    .expand = Expand<true>,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_eigvals = Decomposition({
    .name = "weft.eigvals",
    .c_name = "eigvals",
    .doc = "The eigenvalues that eig gives, without their vectors.",
    .example = "w = wf_eigvals(s, a);",
    .operands = kSquareOperands,
    .infer = Infer<false>,
    .gradient = GradientOfValues,
    .expand = Expand<false>,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
