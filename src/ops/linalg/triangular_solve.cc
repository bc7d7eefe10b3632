// triangular_solve: x of op(a) x = b or x op(a) = b, a triangular.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/linalg/factors.h"
#include "src/ops/planes.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"a", kF | kC, "[..., n, n], triangular; the other triangle is not read"},
                                    {"b", kF | kC, "[..., n, m], or [..., m, n] where a is on the right"}};
constexpr std::string_view kTranspositions[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
constexpr AttrDef kAttrs[] = {
    {"left_side", AttrType::kBool, "op(a) x = b; else x op(a) = b", false, "true"},
    {"lower", AttrType::kBool, "a is a lower triangle; else an upper one", false, "true"},
    {"unit_diagonal", AttrType::kBool, "take the diagonal of a for ones without reading it", false, "false"},
    {"transpose_a", AttrType::kEnum, "op: a itself, its transpose, or its conjugate transpose", false, "NO_TRANSPOSE",
     kTranspositions}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &a = *call.operands[0], &b = *call.operands[1];
  WEFT_RETURN_IF_ERROR(CheckSquare("a", a));
  const bool left = Attr<kAttrs, "left_side">(call.attrs);
  const size_t rank = a.rank();
  if (b.rank() != rank || !std::equal(a.dims.begin(), a.dims.end() - 2, b.dims.begin())) {
    return UserError("a is ", ShortType(a), " and b ", ShortType(b), "; all dimensions but the last two must be equal");
  }
  const size_t solved = left ? rank - 2 : rank - 1;
  if (b.dims[solved] != a.dims[rank - 1]) {
    return UserError("dimension ", solved, " of b is ", b.dims[solved], "; a has ", a.dims[rank - 1],
                     " rows, and the two must be equal where a is on the ", left ? "left" : "right");
  }
  results->push_back(b);
  return absl::OkStatus();
}

// db solves the transposed equations for dx; da is -db x^T on a's triangle (x^T db where a is on the right), transposed as op. The conjugate
// transpose is the transpose of a's conjugate.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& attrs = call.node.attrs();
  const bool left = Attr<kAttrs, "left_side">(attrs), lower = Attr<kAttrs, "lower">(attrs);
  const bool unit = Attr<kAttrs, "unit_diagonal">(attrs), transposed = Attr<kAttrs, "transpose_a">(attrs) != 0;
  const bool conjugated = static_cast<Transposition>(Attr<kAttrs, "transpose_a">(attrs)) == Transposition::kAdjoint;
  const Value a = conjugated ? Conj(b, call.operands[0]) : call.operands[0];
  const Value db = TriangularSolve(b, a, call.cotangents[0], left, lower, unit, !transposed);
  if (call.wanted[1]) grads[1] = db;
  if (!call.wanted[0]) return absl::OkStatus();
  const Value& x = call.results[0];
  // [n, m] [m, n] on the left, [n, m] [m, n] of the transposes on the right.
  const Value& first = left != transposed ? db : x;
  const Value& second = left != transposed ? x : db;
  const Value product = BatchMatmul(b, first, second, !left, left);
  const Value da = Neg(b, Triangle(b, product, lower, unit));
  grads[0] = conjugated ? Conj(b, da) : da;
  return absl::OkStatus();
}

Splits OnPlanes(const PlanesCall& call) {
  const Attrs& attrs = call.attrs();
  const auto op = static_cast<Transposition>(Attr<kAttrs, "transpose_a">(attrs));
  const int64_t mode = (Attr<kAttrs, "left_side">(attrs) ? 0 : linalg::kRight) |
                       (Attr<kAttrs, "lower">(attrs) ? linalg::kLower : 0) |
                       (Attr<kAttrs, "unit_diagonal">(attrs) ? linalg::kUnit : 0) |
                       (op == Transposition::kTranspose ? linalg::kTransposed
                        : op == Transposition::kAdjoint ? linalg::kConjugated
                                                        : 0);
  const Planes &a = call.planes(0), &x = call.planes(1);
  const Values found = CallAll(call.b, kOp_matrix_factors, {a.re, a.im, x.re, x.im},
                               {static_cast<int64_t>(linalg::Kind::kTriangular), mode});
  return call.b.ok() ? Complex({found[0], found[1]}) : Splits(1);
}

// Real numbers alone come here; complex ones are two planes by then.
absl::Status Reference(const ReferenceCall& call) {
  const std::vector<double> a = ToDoubles(*call.operands[0]), b = ToDoubles(*call.operands[1]);
  HostTensor& result = call.results[0];
  const Dims &a_dims = call.operands[0]->dims(), &b_dims = result.dims();
  const bool left = Attr<kAttrs, "left_side">(call.attrs), unit = Attr<kAttrs, "unit_diagonal">(call.attrs);
  const bool lower = Attr<kAttrs, "lower">(call.attrs), transposed = Attr<kAttrs, "transpose_a">(call.attrs) != 0;
  const int64_t n = a_dims.back(), columns = b_dims.back();
  const int64_t m = left ? columns : b_dims[b_dims.size() - 2];
  // Solves left[i][k] x[k][j] = b[i][j]: from the right it is the transposed equation.
  const bool flip = transposed == left;
  const bool forward = lower != flip;
  const auto at = [&](int64_t i, int64_t j) { return left ? i * columns + j : j * columns + i; };
  for (int64_t page = 0; result.count() != 0 && page < result.count() / (n * m); ++page) {
    const double* matrix = a.data() + page * n * n;
    std::vector<double> x(b.begin() + page * n * m, b.begin() + (page + 1) * n * m);
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = forward ? step : n - 1 - step;
      for (int64_t j = 0; j < m; ++j) {
        double sum = x[at(i, j)];
        for (int64_t before = 0; before < step; ++before) {
          const int64_t k = forward ? before : n - 1 - before;
          sum -= (flip ? matrix[k * n + i] : matrix[i * n + k]) * x[at(k, j)];
        }
        x[at(i, j)] = unit ? sum : sum / matrix[i * n + i];
      }
    }
    for (int64_t k = 0; k < n * m; ++k) result.SetDouble(page * n * m + k, x[k]);
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  writer.Emit("triangular_solve",
              {{"left_side", ShloBool(Attr<kAttrs, "left_side">(a))},
               {"lower", ShloBool(Attr<kAttrs, "lower">(a))},
               {"unit_diagonal", ShloBool(Attr<kAttrs, "unit_diagonal">(a))},
               {"transpose_a", ShloEnum("transpose", kTranspositions[Attr<kAttrs, "transpose_a">(a)])}});
}

constexpr Sample kSamples[] = {
    {"T[3,3]<dominant> T[3,2]"},
    {"T[3,3]<dominant> T[3,2] lower=false"},
    {"T[3,3]<dominant> T[3,2] transpose_a=TRANSPOSE"},
    {"T[3,3]<dominant> T[3,2] lower=false transpose_a=ADJOINT"},
    {"T[3,3]<dominant> T[2,3] left_side=false"},
    {"T[3,3]<dominant> T[2,3] left_side=false lower=false"},
    {"T[3,3]<dominant> T[2,3] left_side=false transpose_a=TRANSPOSE"},
    {"T[3,3]<dominant> T[2,3] left_side=false lower=false transpose_a=TRANSPOSE"},
    {"T[2,3,3] T[2,3,1] unit_diagonal=true"},
    {"T[2,3,3] T[2,4,3] left_side=false unit_diagonal=true lower=false"},
    {"T[0,0] T[0,2]"},
    {"T[2,3,3]<dominant> T[2,3,0]"},
    {"T[150,150]<dominant> T[150,7]", -2, 2, false},
    {"T[2,90,90]<dominant> T[2,5,90] left_side=false lower=false transpose_a=TRANSPOSE", -2, 2, false}};

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  const Dims& dims = call.node.operands()[0].dims();
  return Work{.flops = ElementsOf(call.node.type()) * (dims.empty() ? 1 : static_cast<double>(dims.back()))};
}

}  // namespace

absl::Status CheckSquare(std::string_view name, const Type& x) {
  if (x.rank() >= 2 && x.dims[x.rank() - 1] == x.dims[x.rank() - 2]) return absl::OkStatus();
  return UserError(name, " is ", ShortType(x), "; its last two dimensions must be equal, those of square matrices");
}

Value Triangle(Builder& b, const Value& x, bool lower, bool strict) {
  if (!x) return {};
  const Dims& dims = x.dims();
  const auto rank = static_cast<int64_t>(dims.size());
  const Dims matrix = {dims[rank - 2], dims[rank - 1]};
  const Value row = Iota(b, DType::kI64, matrix, 0), column = Iota(b, DType::kI64, matrix, 1);
  const Direction inside =
      lower ? (strict ? Direction::kGt : Direction::kGe) : (strict ? Direction::kLt : Direction::kLe);
  const Value mask = BroadcastInDim(b, Compare(b, inside, row, column), dims, {rank - 2, rank - 1});
  return Select(b, mask, x, FullLike(b, x, 0));
}

Value MatrixTranspose(Builder& b, const Value& x) {
  if (!x) return {};
  Ints order = Axes(x.dims().size());
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return Transpose(b, x, order);
}

Value TriangularSolve(Builder& b, const Value& a, const Value& x, bool left_side, bool lower, bool unit_diagonal,
                      bool transpose) {
  const Transposition op = transpose ? Transposition::kTranspose : Transposition::kNone;
  return Call(b, kOp_triangular_solve, {a, x},
              {int64_t{left_side}, int64_t{lower}, int64_t{unit_diagonal}, static_cast<int64_t>(op)});
}

constinit const OpDef kOp_triangular_solve = {
    .name = "triangular_solve",
    .c_name = "triangular_solve",
    .since = 1,
    .doc =
        "Solves op(a) x = b, or x op(a) = b, for x, a being triangular matrices. Where the diagonal has a 0 the results are "
        "infinite or NaN. f16 and bf16 are computed in f32.",
    .example = "x = wf_triangular_solve(s, l, b, .lower = true);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = BatchLeading,
    .reference = Reference,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-5},
    .planes = OnPlanes,
    .work = OwnWork,
};

}  // namespace weft::ops
