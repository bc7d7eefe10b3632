// cholesky: a positive definite matrix as a triangle times its conjugate transpose.
#include <cmath>
#include <limits>

#include "src/ir/stablehlo.h"
#include "src/ops/linalg/factors.h"
#include "src/ops/planes.h"
#include "src/ops/work.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"a", kF | kC, "[..., n, n], symmetric or hermitian; one triangle is read"}};
constexpr AttrDef kAttrs[] = {
    {"lower", AttrType::kBool, "read the lower triangle, a = l l^H; else the upper one, a = u^H u", false, "false"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckSquare("a", *call.operands[0]));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// With p(m) the lower triangle of m and half its diagonal, which is real, da = s + s^H but for the diagonal, s = l^-H p(l^H dl) l^-1,
// on the triangle that is read. Source: Murray, Differentiation of the Cholesky decomposition (2016).
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const bool lower = Attr<kAttrs, "lower">(call.node.attrs());
  const Value l = lower ? call.results[0] : Adjoint(b, call.results[0]), conjugate = Conj(b, l);
  const Value dl = lower ? Conj(b, call.cotangents[0]) : MatrixTranspose(b, call.cotangents[0]);
  if (!b.ok()) return absl::OkStatus();
  const Value m = BatchMatmul(b, conjugate, dl, true, false), below = Triangle(b, m, true, true);
  const Value diagonal = As(b, RealPart(b, Sub(b, Triangle(b, m, true), below)), m.dtype());
  const Value p = Add(b, below, Mul(b, diagonal, 0.5));
  const Value left = TriangularSolve(b, conjugate, p, true, true, false, true);
  const Value s = TriangularSolve(b, l, left, false, true, false, false);
  const Value both = OfTriangle(b, s, true);
  grads[0] = lower ? Conj(b, both) : MatrixTranspose(b, both);
  return absl::OkStatus();
}

Splits OnPlanes(const PlanesCall& call) {
  const Planes& a = call.planes(0);
  const int64_t mode = Attr<kAttrs, "lower">(call.attrs()) ? linalg::kLower : 0;
  const Values found =
      CallAll(call.b, kOp_matrix_factors, {a.re, a.im}, {static_cast<int64_t>(linalg::Kind::kCholesky), mode});
  return call.b.ok() ? Complex({found[0], found[1]}) : Splits(1);
}

// Real numbers alone come here; complex ones are two planes by then.
absl::Status Reference(const ReferenceCall& call) {
  const std::vector<double> a = ToDoubles(*call.operands[0]);
  HostTensor& result = call.results[0];
  const Dims& dims = result.dims();
  const int64_t n = dims.back(), square = n * n;
  const bool lower = Attr<kAttrs, "lower">(call.attrs);
  const int64_t row = lower ? n : 1, column = lower ? 1 : n;
  for (int64_t first = 0; first < result.count(); first += square) {
    std::vector<double> l(square, 0.0);
    bool definite = true;
    PieceLook look(static_cast<double>(n) * static_cast<double>(n));
    for (int64_t i = 0; i < n && definite && !look.Ends(); ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double sum = a[first + i * row + j * column];
        for (int64_t k = 0; k < j; ++k) sum -= l[i * n + k] * l[j * n + k];
        definite = definite && (i != j || sum > 0);
        l[i * n + j] = i == j ? std::sqrt(sum) : sum / l[j * n + j];
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        result.SetDouble(first + i * row + j * column,
                         definite ? l[i * n + j] : std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[3,3]<dominant> lower=true"},
                               {"T[2,4,4]<dominant>"},
                               {"T[1,1]<dominant> lower=true"},
                               {"T[0,0]"},
                               {"T[2,0,3,3]<dominant>"},
                               {"T[5,5] lower=true", -1, 1, false},
                               {"T[90,90]<dominant> lower=true", -2, 2, false}};

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  const Dims& dims = call.node.operands()[0].dims();
  return Work{.flops = ElementsOf(call.node.type()) * (dims.empty() ? 1 : static_cast<double>(dims.back())) / 3};
}

}  // namespace

constinit const OpDef kOp_cholesky = {
    .name = "cholesky",
    .c_name = "cholesky",
    .since = 1,
    .doc =
        "The Cholesky decomposition of symmetric or hermitian positive definite matrices, a = l l^H (lower) or u^H u. The other triangle of "
        "a is not read, that of the result is 0. A matrix that is not positive definite gives NaN everywhere. f16 and bf16 are "
        "computed in f32. The gradient is that of the triangle which is read.",
    .example = "l = wf_cholesky(s, a, .lower = true);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = BatchLeading,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-5},
    .planes = OnPlanes,
    .work = OwnWork,
};

}  // namespace weft::ops
