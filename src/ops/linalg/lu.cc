// lu: rows of a in another order as a product of triangles.
#include <algorithm>

#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kResults[] = {"lu", "pivots", "permutation"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckMatrix("x", x));
  WEFT_RETURN_IF_ERROR(CheckSize("x", x));
  const int64_t m = x.dims[x.rank() - 2], n = x.dims.back();
  results->push_back(x);
  results->push_back(Stacked(x, DType::kI32, {std::min(m, n)}));
  results->push_back(Stacked(x, DType::kI32, {m}));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  std::ranges::move(Factors(call.b, linalg::Kind::kLu, 0, call.operands.first(1)), results.begin());
  return call.b.status();
}

// With l and u made square by ones on their diagonals, d(lu) = l tril(d, -1) + triu(d) u for d = l^-1 da u^-1, da's rows being
// in lu's order.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &lu = call.results[0], &g = call.cotangents[0];
  if (!g) return absl::OkStatus();
  const int64_t m = RowsOf(lu), n = ColumnsOf(lu), k = std::min(m, n);
  if (k == 0) {
    grads[0] = FullLike(b, lu, 0);
    return absl::OkStatus();
  }
  const Value l = Widen(b, FirstColumns(b, lu, k), m, m);
  Value u = Widen(b, FirstRows(b, lu, k), n, n);
  if (m < n && u) {
    const auto rank = static_cast<int64_t>(u.dims().size());
    const Value row = Iota(b, DType::kI64, u.dims(), rank - 2), column = Iota(b, DType::kI64, u.dims(), rank - 1);
    const Value added =
        And(b, Compare(b, Direction::kEq, row, column), Compare(b, Direction::kGe, row, static_cast<double>(k)));
    u = Select(b, added, FullLike(b, u, 1), u);
  }
  const Value unit =
      Select(b, Compare(b, Direction::kEq, Iota(b, DType::kI64, {m, m}, 0), Iota(b, DType::kI64, {m, m}, 1)),
             Full(b, lu.dtype(), {m, m}, 1), Full(b, lu.dtype(), {m, m}, 0));
  if (!b.ok()) return b.status();
  const Value whole = Add(b, Triangle(b, l, true, true), BroadcastTo(b, unit, l.dims()));
  const Value below = Triangle(b, BatchMatmul(b, whole, g, true, false), true, true);
  const Value above = Triangle(b, BatchMatmul(b, g, Triangle(b, u, false), false, true), false);
  const Value right = TriangularSolve(b, u, Add(b, below, above), false, false, false, true);
  const Value left = TriangularSolve(b, l, right, true, true, true, true);
  grads[0] = PutRows(b, left, call.results[2]);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,4]<dominant>"},
                               {"T[2,5,3]", -2, 2, false},
                               {"T[3,5]", -2, 2, false},
                               {"T[1,1]", 0.5, 2},
                               {"T[0,3]"},
                               {"T[2,0,0]"},
                               {"c128[2,4,4]"},
                               {"T[70,70]<dominant>", -2, 2, false}};

}  // namespace

constinit const OpDef kOp_lu = Decomposition({
    .name = "weft.lu",
    .c_name = "lu",
    .doc =
        "The LU decomposition of matrices by partial pivoting: a[permutation] = l u. lu has u in its upper triangle and below it l, "
        "whose diagonal of ones is left out. Row i was exchanged with row pivots[i], counted from 0, one after the other; "
        "permutation is what comes of that. A matrix without an inverse has zeros on u's diagonal; one with an element that is not "
        "finite has NaN everywhere. f16 and bf16 are computed in f32.",
    .example = "f = wf_lu(s, a);",
    .operands = kMatrixOperands,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
