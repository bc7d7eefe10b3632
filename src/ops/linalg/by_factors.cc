// Factors as LAPACK keeps them, and what is computed by factors that there are: geqrf, ormqr, lu_solve, logdet.
#include <algorithm>

#include "src/ops/elementwise/special.h"
#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kTransposes[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
enum : int64_t { kPlain, kTransposed, kAdjoint };
constexpr AttrDef kSolveAttrs[] = {{"transpose_a", AttrType::kEnum,
                                    "which of the factored matrices' forms stands on the left", false, "NO_TRANSPOSE",
                                    kTransposes}};
constexpr AttrDef kReflectAttrs[] = {{"left_side", AttrType::kBool, "q times x; else x times q", false, "true"},
                                     {"adjoint", AttrType::kBool, "q's adjoint in place of q", false, "false"}};
constexpr std::string_view kReflectors[] = {"reflectors", "tau"};
constexpr OperandDef kFactored[] = {{"lu", kF | kC, "[..., n, n], lu's first result"},
                                    {"permutation", kI, "[..., n], lu's third result", false, false, 'I'},
                                    {"b", kF | kC, "[..., n, k]"}};
constexpr OperandDef kReflected[] = {{"reflectors", kF | kC, "[..., m, k], geqrf's first result"},
                                     {"tau", kF | kC, "[..., at most k], geqrf's second result"},
                                     {"x", kF | kC, "[..., m, n]; [..., n, m] where q is on the right"}};

absl::Status InferReflectors(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  results->push_back(x);
  results->push_back(Stacked(x, x.dtype, {std::min(x.dims[x.rank() - 2], x.dims.back())}));
  return absl::OkStatus();
}
absl::Status ExpandReflectors(const ExpandCall& call, std::span<Value> results) {
  std::ranges::move(Factors(call.b, linalg::Kind::kReflectors, 0, call.operands.first(1)), results.begin());
  return call.b.status();
}
// 0 would be a wrong number.
absl::Status GradientReflectors(const GradCall&, std::span<Value>) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "reflectors have no gradient; qr's q and r have one");
}

absl::Status InferReflected(const InferCall& call, Types* results) {
  const Type &v = *call.operands[0], &tau = *call.operands[1], &x = *call.operands[2];
  WEFT_RETURN_IF_ERROR(CheckMatrix("reflectors", v));
  WEFT_RETURN_IF_ERROR(CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  const int64_t m = v.dims[v.rank() - 2], k = v.dims.back();
  if (tau.rank() + 1 != v.rank() || tau.dims.back() > std::min(m, k) ||
      !std::equal(v.dims.begin(), v.dims.end() - 2, tau.dims.begin())) {
    return UserError("reflectors are ", ShortType(v), " and tau ", ShortType(tau),
                     "; tau has their leading dimensions and at most as many numbers as the smaller of the others");
  }
  const int64_t met = Attr<kReflectAttrs, "left_side">(call.attrs) ? x.dims[x.rank() - 2] : x.dims.back();
  if (met != m) return UserError("reflectors have ", m, " rows, and x, ", ShortType(x), ", meets them with ", met);
  if (!std::ranges::equal(std::span(v.dims).first(v.rank() - 2), std::span(x.dims).first(x.rank() - 2))) {
    return UserError("reflectors are ", ShortType(v), " and x ", ShortType(x),
                     "; their leading dimensions must be equal");
  }
  results->push_back(x);
  return absl::OkStatus();
}
// q is square: columns of zeros, of which no reflection comes, make reflectors so.
absl::Status ExpandReflected(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &v = call.operands[0], &tau = call.operands[1], &x = call.operands[2];
  const int64_t m = RowsOf(v), k = std::min(m, ColumnsOf(v)), more = m - tau.dims().back();
  Ints low(tau.dims().size(), 0), high = low;
  high.back() = more;
  const Value wide = Widen(b, FirstColumns(b, v, k), m, m);
  const Value numbers = more == 0 ? tau : Call(b, kOp_pad, {tau, Scalar(b, tau.dtype(), 0)}, {low, high, low});
  Value q = Call(b, kOp_householder_product, {wide, numbers});
  if (Attr<kReflectAttrs, "adjoint">(call.attrs)) q = Adjoint(b, q);
  results[0] = Attr<kReflectAttrs, "left_side">(call.attrs) ? Product(b, q, x) : Product(b, x, q);
  return b.status();
}

absl::Status InferFactored(const InferCall& call, Types* results) {
  const Type &lu = *call.operands[0], &order = *call.operands[1], &b = *call.operands[2];
  WEFT_RETURN_IF_ERROR(CheckSquare("lu", lu));
  if (b.rank() != lu.rank() || !std::equal(lu.dims.begin(), lu.dims.end() - 1, b.dims.begin())) {
    return UserError("lu is ", ShortType(lu), " and b ", ShortType(b), "; all dimensions but the last must be equal");
  }
  if (!std::ranges::equal(order.dims, std::span(lu.dims).first(lu.rank() - 1))) {
    return UserError("permutation is ", ShortType(order), "; of lu, ", ShortType(lu),
                     ", it has all dimensions but the last");
  }
  results->push_back(b);
  return absl::OkStatus();
}
absl::Status ExpandFactored(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const int64_t form = Attr<kSolveAttrs, "transpose_a">(call.attrs);
  const Value lu = form == kAdjoint ? Conj(b, call.operands[0]) : call.operands[0];
  const Value &order = call.operands[1], &right = call.operands[2];
  if (form == kPlain) {
    const Value y = TriangularSolve(b, lu, TakeRows(b, right, order), true, true, true, false);
    results[0] = TriangularSolve(b, lu, y, true, false, false, false);
  } else {
    const Value y = TriangularSolve(b, lu, right, true, false, false, true);
    results[0] = PutRows(b, TriangularSolve(b, lu, y, true, true, true, true), order);
  }
  return b.status();
}

absl::Status InferLogdet(const InferCall& call, Types* results) {
  return kOp_det.infer(InferCall{kOp_det, call.operands, call.attrs}, results);
}
absl::Status ExpandLogdet(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Values found = CallAll(b, kOp_slogdet, {call.operands[0]});
  if (!b.ok()) return b.status();
  results[0] = Add(b, As(b, found[1], found[0].dtype()), Log(b, found[0]));
  return b.status();
}

constexpr Sample kReflectorSamples[] = {{"T[4,4]<dominant>", -2, 2, false},
                                        {"T[2,5,3]", -2, 2, false},
                                        {"T[3,5]", -2, 2, false},
                                        {"T[0,3]", -2, 2, false},
                                        {"c128[2,4,3]", -2, 2, false}};
constexpr Sample kReflectedSamples[] = {{"T[4,2] T[2] T[4,3]", -1, 1},
                                        {"T[2,3,3] T[2,2] T[2,2,3] left_side=false adjoint=true", -1, 1},
                                        {"T[3,0] T[0] T[3,2]", -1, 1, false}};
constexpr Sample kFactoredSamples[] = {{"T[3,3]<dominant> i32[3]<0:3> T[3,2]"}};
constexpr Sample kLogdets[] = {{"T[3,3]<dominant>"}, {"T[2,2,2]<dominant>"}, {"T[0,0]"}};

}  // namespace

constinit const OpDef kOp_geqrf = Decomposition({
    .name = "weft.geqrf",
    .c_name = "geqrf",
    .doc =
        "The QR decomposition as LAPACK keeps it: r in and above the diagonal, Householder's reflectors below it, and the factor of each "
        "reflector. householder_product makes q of them, ormqr multiplies by it. A gradient is UNIMPLEMENTED: qr has one.",
    .example = "f = wf_geqrf(s, a);",
    .operands = kMatrixOperands,
    .results = kReflectors,
    .infer = InferReflectors,
    .gradient = GradientReflectors,
    .expand = ExpandReflectors,
    .samples = kReflectorSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_ormqr = Formula({
    .name = "weft.ormqr",
    .c_name = "ormqr",
    .doc = "Matrices times the square q of geqrf's reflectors, or its adjoint, on either side.",
    .example = "y = wf_ormqr(s, reflectors, tau, x);",
    .operands = kReflected,
    .attrs = kReflectAttrs,
    .infer = InferReflected,
    .expand = ExpandReflected,
    .samples = kReflectedSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_lu_solve = Formula({
    .name = "weft.lu_solve",
    .c_name = "lu_solve",
    .doc = "Solves a x = b for x, or with a's transpose or adjoint, given lu's factors and permutation of a.",
    .example = "x = wf_lu_solve(s, lu, permutation, b);",
    .operands = kFactored,
    .attrs = kSolveAttrs,
    .infer = InferFactored,
    .expand = ExpandFactored,
    .samples = kFactoredSamples,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_logdet = Formula({
    .name = "weft.logdet",
    .c_name = "logdet",
    .doc =
        "The logarithms of the determinants of square matrices, which do not overflow: -inf of 0, NaN of a real one below 0.",
    .example = "y = wf_logdet(s, a);",
    .operands = kSquareOperands,
    .infer = InferLogdet,
    .expand = ExpandLogdet,
    .samples = kLogdets,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
