// matrix_factors: factors of real matrices, or of complex ones as two planes, which decompositions expand to. So backends know
// one operation and no complex number.
#include "src/ops/linalg/factors.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/ir/stablehlo.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"operands", kF, "planes of x, or of a and of b, in f32 or f64; pivots behind them", false, true}};
constexpr AttrDef kAttrs[] = {{"kind", AttrType::kInt, "which factors: a linalg::Kind", true},
                              {"mode", AttrType::kInt, "bits that say how (src/linalg/factors.h)", false, "0"}};
constexpr std::string_view kResults[] = {"results"};

// Two operands, of which the first is the matrix of equations.
bool Equations(linalg::Kind kind) { return kind == linalg::Kind::kTriangular || kind == linalg::Kind::kLdlSolve; }

size_t Given(std::span<const Type* const> operands) {
  size_t given = operands.size();
  while (given > 0 && operands[given - 1] == nullptr) --given;
  return given;
}

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const linalg::Job job, FactorsJob(call.attrs, call.operands));
  const Type& x = *call.operands[0];
  for (const linalg::Shape& shape : linalg::Results(job)) {
    Dims dims(x.dims.begin(), x.dims.end() - 2);
    dims.insert(dims.end(), shape.dims.begin(), shape.dims.end());
    if (!CheckedCount(dims)) return UserError("a factor ", DimsToString(dims), " has too many elements");
    results->push_back(Type::Tensor(shape.integers ? DType::kI32 : x.dtype, std::move(dims)));
  }
  return absl::OkStatus();
}

// In the operands' type, as backends compute it: of the same matrix in two types LAPACK may give vectors of other signs. Judges are
// outside (tests/ops/numpy_linalg.py).
absl::Status Reference(const ReferenceCall& call) {
  std::vector<Type> types;
  std::vector<const Type*> pointers;
  std::vector<const void*> operands;
  std::vector<void*> results;
  for (const HostTensor* operand : call.operands) {
    if (operand == nullptr) break;
    types.push_back(Type::Tensor(operand->dtype(), operand->dims()));
    operands.push_back(operand->bytes().data());
  }
  for (const Type& type : types) pointers.push_back(&type);
  for (HostTensor& result : call.results) results.push_back(result.mutable_bytes().data());
  WEFT_ASSIGN_OR_RETURN(const linalg::Job job, FactorsJob(call.attrs, pointers));
  return linalg::Run(job, operands, results, nullptr);
}

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  std::vector<const Type*> types;
  for (const Value& operand : call.node.operands()) {
    if (operand) types.push_back(&operand.type());
  }
  WEFT_ASSIGN_OR_RETURN(const linalg::Job job, FactorsJob(call.node.attrs(), types));
  // Leading terms, Golub and Van Loan; of iterations what they usually take.
  constexpr double kOf[] = {2.0 / 3, 4.0 / 3, 9, 20, 25, 1.0 / 3, 1, 4.0 / 3, 1.0 / 3, 2};
  const double m = static_cast<double>(job.rows), n = static_cast<double>(job.columns);
  const double per = m * n * (Equations(job.kind) ? (job.has(linalg::kRight) ? n : m) : std::min(m, n));
  return Work{.flops =
                  kOf[static_cast<size_t>(job.kind)] * per * static_cast<double>(job.batch) * (job.complex ? 4 : 1)};
}

// StableHLO has no such operation: a call, as XLA's interface of typed calls writes it, which src/stablehlo/lapack.cc reads.
void StableHlo(const Node& node, StableHloWriter& writer) {
  const std::string how = absl::StrCat("{kind = ", Attr<kAttrs, "kind">(node.attrs()),
                                       " : i64, mode = ", Attr<kAttrs, "mode">(node.attrs()), " : i64}");
  writer.Emit("custom_call",
              {{"call_target_name", "\"weft.matrix_factors\""}, {"api_version", "4 : i32"}, {"backend_config", how}});
}

constexpr Sample kSamples[] = {{"f64[5,3] kind=0"},        {"f32[2,3,4] kind=1 mode=1"},
                               {"f64[4,4] kind=2 mode=4"}, {"f64[0,3,3] kind=3"},
                               {"f64[3,4] kind=3 mode=2"}, {"f64[4,2] kind=7"},
                               {"f64[3,3] kind=4 mode=2"}, {"f64[3,3]<dominant> f64[3,2] kind=6 mode=4"},
                               {"f64[2,3,3] kind=8"}};
constexpr Absent kAbsent[] = {{Part::kGradient, Reason::kNotDifferentiable},
                              {Part::kExample, Reason::kMovedByExpansionOf}};

}  // namespace

bool BecomesFactors(const Node& node) {
  static constexpr const OpDef* kAll[] = {
      &kOp_matrix_factors, &kOp_lu,  &kOp_qr,       &kOp_eigh,         &kOp_eigvalsh, &kOp_svd,
      &kOp_svdvals,        &kOp_eig, &kOp_det,      &kOp_solve_square, &kOp_pinv,     &kOp_eigvals,
      &kOp_geqrf,          &kOp_ldl, &kOp_ldl_solve};
  const OpDef* const op = &node.op();
  if (op == &kOp_cholesky || op == &kOp_triangular_solve) return IsComplex(node.type().dtype);
  return std::ranges::find(kAll, op) != std::end(kAll);
}

absl::StatusOr<linalg::Job> FactorsJob(const Attrs& attrs, std::span<const Type* const> operands) {
  const size_t given = Given(operands);
  linalg::Job job;
  const int64_t kind = Attr<kAttrs, "kind">(attrs);
  if (kind < 0 || kind > static_cast<int64_t>(linalg::Kind::kLdlSolve))
    return UserError("there are no factors of kind ", kind);
  job.kind = static_cast<linalg::Kind>(kind);
  job.mode = Attr<kAttrs, "mode">(attrs);
  const bool two = Equations(job.kind);
  const size_t one = two ? 2 : 1, pivots = job.kind == linalg::Kind::kLdlSolve ? 1 : 0;
  if (given != one + pivots && given != 2 * one + pivots) {
    return UserError("there are ", given, " operands; ", one + pivots, " or, of complex numbers, ", 2 * one + pivots,
                     " are needed");
  }
  job.complex = given == 2 * one + pivots;
  const size_t planes = job.complex ? 2 : 1;
  const Type& x = *operands[two ? planes : 0];
  if (x.dtype != DType::kF32 && x.dtype != DType::kF64) {
    return UserError("the planes are ", NameOf(x.dtype), "; they must be f32 or f64");
  }
  for (size_t i = 0; i < given; ++i) {
    WEFT_RETURN_IF_ERROR(CheckMatrix("an operand", *operands[i]));
    if (i >= planes * one) continue;
    if (operands[i]->dims != operands[i / planes * planes]->dims) return UserError("the planes differ in shape");
  }
  job.wide = x.dtype == DType::kF64;
  job.rows = x.dims[x.rank() - 2];
  job.columns = x.dims.back();
  job.batch = CountOf(std::span(x.dims).first(x.rank() - 2));
  const bool square = job.kind == linalg::Kind::kEigh || job.kind == linalg::Kind::kEig ||
                      job.kind == linalg::Kind::kCholesky || job.kind == linalg::Kind::kLdl;
  if (square && job.rows != job.columns) return UserError("the matrices must be square, not ", ShortType(x));
  if (two) {
    Dims dims = x.dims;
    dims[x.rank() - 2] = dims[x.rank() - 1] = job.has(linalg::kRight) ? job.columns : job.rows;
    if (operands[0]->dims != dims)
      return UserError("a has shape ", DimsToString(operands[0]->dims), ", not ", DimsToString(dims));
    dims.back() = 1;
    if (pivots != 0 && operands[given - 1]->dims != dims) {
      return UserError("the pivots have shape ", DimsToString(operands[given - 1]->dims), ", not ", DimsToString(dims));
    }
  }
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  return job;
}

Values Factors(Builder& b, linalg::Kind kind, int64_t mode, std::span<const Value> of) {
  Values planes;
  for (const Value& x : of) {
    if (!x) return {};
    if (!IsComplex(x.dtype())) {
      planes.push_back(Widened(b, x));
      continue;
    }
    const Planes parts = PlanesOf(b, x);
    planes.push_back(parts.re);
    planes.push_back(parts.im);
  }
  const bool complex = IsComplex(of[0].dtype());
  const Values found = CallAll(b, kOp_matrix_factors, std::move(planes), {static_cast<int64_t>(kind), mode});
  Values factors;
  // Values of hermitian matrices and singular values are real, integers whole.
  size_t real = kind == linalg::Kind::kEigh || kind == linalg::Kind::kSvd ? 1 : 0;
  for (size_t i = 0; i < found.size() && b.ok();) {
    const bool both = kind == linalg::Kind::kEig || (complex && real == 0 && found[i].dtype() != DType::kI32);
    if (real > 0) --real;
    const bool rounds = found[i].dtype() != DType::kI32 && !complex;
    factors.push_back(both     ? ComplexFrom(b, {found[i], found[i + 1]})
                      : rounds ? As(b, found[i], of[0].dtype())
                               : found[i]);
    i += both ? 2 : 1;
  }
  return factors;
}

constinit const OpDef kOp_matrix_factors = {
    .name = "weft.matrix_factors",
    .c_name = "matrix_factors",
    .since = 2,
    .doc =
        "Factors of dense matrices by LAPACK, of each matrix of a batch; what the operations lu, qr, eigh, svd, eig and solve "
        "expand to.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .batching = BatchLeading,
    .reference = Reference,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
    .absent = kAbsent,
    .exported = false,
    .work = OwnWork,
};

}  // namespace weft::ops
