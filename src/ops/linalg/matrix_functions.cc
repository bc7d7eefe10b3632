// matrix_exp and householder_product.
#include <algorithm>
#include <cmath>

#include "src/ops/elementwise/special.h"
#include "src/ops/linalg/factors.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kReflectors[] = {
    {"v", kF | kC, "[..., m, n], reflectors in the columns below the diagonal, n at most m"},
    {"tau", kF | kC, "[..., k], their factors, k at most n"}};

absl::Status InferExp(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckSquare("x", *call.operands[0]));
  WEFT_RETURN_IF_ERROR(CheckSize("x", *call.operands[0]));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// Padé's approximation of degree 13, right to roundoff for 1-norms up to 5.37; larger matrices are halved first and squared
// afterwards. Source: Higham, The scaling and squaring method for the matrix exponential revisited (2005).
constexpr double kPade[] = {64764752532480000,
                            32382376266240000,
                            7771770303897600,
                            1187353796428800,
                            129060195264000,
                            10559470521600,
                            670442572800,
                            33522128640,
                            1323241920,
                            40840800,
                            960960,
                            16380,
                            182,
                            1};
constexpr double kLargest = 5.371920351148152;
constexpr int kMostSquarings = 16;

// The exponential of x with a norm of at most kLargest.
Value ByPade(Builder& b, const Value& x) {
  const Value one = IdentityLike(b, x);
  const Value x2 = Product(b, x, x), x4 = Product(b, x2, x2), x6 = Product(b, x4, x2);
  const auto sum = [&](int high, bool unit) {
    Value s = Add(b, Add(b, Mul(b, x6, kPade[high]), Mul(b, x4, kPade[high - 2])), Mul(b, x2, kPade[high - 4]));
    return unit ? Add(b, s, Mul(b, one, kPade[high - 6])) : s;
  };
  const Value odd = Product(b, x, Add(b, Product(b, x6, sum(13, false)), sum(7, true)));
  const Value even = Add(b, Product(b, x6, sum(12, false)), sum(6, true));
  if (!b.ok()) return {};
  return SolveSquare(b, Sub(b, even, odd), Add(b, even, odd), false);
}

absl::Status ExpandExp(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  if (x.type().count() == 0) {
    results[0] = x;
    return absl::OkStatus();
  }
  const auto last = static_cast<int64_t>(x.dims().size()) - 1;
  const Value sums = Reduce(b, Abs(b, x), Reducer::kSum, {last - 1});
  const Value norm = sums ? Unary(b, kOp_stop_gradient, Reduce(b, sums, Reducer::kMax, {last - 1})) : sums;
  if (!norm) return b.status();
  // How often: the least s with norm / 2^s <= kLargest. Each step asks whether it is one of them.
  const Value shrunk = Call(b, kOp_log2, {Div(b, norm, FullLike(b, norm, kLargest))});
  const Value halvings = Maximum(b, Unary(b, kOp_ceil, shrunk), FullLike(b, norm, 0));
  const auto spread = [&](const Value& v) { return BroadcastInDim(b, v, x.dims(), Axes(v.dims().size())); };
  const Value scale = Unary(b, kOp_exp2, Neg(b, Minimum(b, halvings, FullLike(b, norm, kMostSquarings))));
  if (!scale) return b.status();
  Value power = ByPade(b, Mul(b, x, spread(As(b, scale, x.dtype()))));
  const Value zero = FullLike(b, x, 0);
  for (int i = 0; i < kMostSquarings && b.ok(); ++i) {
    const Value again = spread(Compare(b, Direction::kGt, halvings, static_cast<double>(i)));
    const Value root = Select(b, again, power, zero);
    power = Select(b, again, Product(b, root, root), power);
  }
  const Value far = Compare(b, Direction::kGt, halvings, static_cast<double>(kMostSquarings));
  const Value bad = far ? spread(far) : far;
  results[0] = Select(b, bad, FullLike(b, x, NAN), power);
  return b.status();
}

absl::Status InferReflectors(const InferCall& call, Types* results) {
  const Type &v = *call.operands[0], &tau = *call.operands[1];
  WEFT_RETURN_IF_ERROR(CheckMatrix("v", v));
  const int64_t m = v.dims[v.rank() - 2], n = v.dims.back();
  if (n > m) return UserError("v is ", ShortType(v), "; it must have as many rows as columns at least");
  if (tau.rank() + 1 != v.rank() || !std::equal(tau.dims.begin(), tau.dims.end() - 1, v.dims.begin()) ||
      tau.dims.back() > n) {
    return UserError("v is ", ShortType(v), " and tau ", ShortType(tau),
                     "; tau has v's leading dimensions and at most ", n, " factors");
  }
  results->push_back(v);
  return absl::OkStatus();
}
// The product of I - tau_i v_i v_i^H is I - v t v^H, t = (I + diag(tau) striu(v^H v))^-1 diag(tau). Source: Schreiber and Van Loan, A
// storage-efficient WY representation for products of Householder transformations (1989).
absl::Status ExpandReflectors(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &given = call.operands[0], &tau = call.operands[1];
  const int64_t n = ColumnsOf(given), k = tau.dims().back();
  const Value one = IdentityLike(b, given);
  const Value part = FirstColumns(b, given, k);
  const Value v = Add(b, Triangle(b, part, true, true), FirstColumns(b, one, k));
  const Value inner = TimesRows(b, Triangle(b, Product(b, Adjoint(b, v), v), false, true), tau);
  const Value t = TriangularSolve(b, inner, DiagonalMatrix(b, tau), true, false, /*unit_diagonal=*/true, false);
  if (!b.ok()) return b.status();
  results[0] = Sub(b, one, Product(b, Product(b, v, t), Adjoint(b, FirstRows(b, v, n))));
  return b.status();
}

constexpr Sample kExps[] = {{"T[3,3]", -1, 1}, {"T[2,2,2]", -1, 1}, {"T[0,0]"}};
constexpr Sample kProducts[] = {{"T[4,3] T[3]", -1, 1}, {"T[2,3,3] T[2,2]", -1, 1}, {"T[3,2] T[0]"}, {"T[0,0] T[0]"}};

}  // namespace

constinit const OpDef kOp_matrix_exp = Formula({
    .name = "weft.matrix_exp",
    .c_name = "matrix_exp",
    .doc =
        "The exponentials of square matrices, by Padé's approximation of degree 13, scaled and squared as the norm asks for: at most 16 "
        "times, so that a matrix with a 1-norm above 350,000 gives NaN.",
    .example = "y = wf_matrix_exp(s, a);",
    .operands = kSquareOperands,
    .infer = InferExp,
    .expand = ExpandExp,
    .samples = kExps,
    .tolerance = kFactorTolerance,
});
constinit const OpDef kOp_householder_product = Formula({
    .name = "weft.householder_product",
    .c_name = "householder_product",
    .doc =
        "The first columns of the product of Householder's reflections I - tau v v^H, each v having a 1 on the diagonal and zeros above "
        "it, which are not read.",
    .example = "q = wf_householder_product(s, v, tau);",
    .operands = kReflectors,
    .infer = InferReflectors,
    .expand = ExpandReflectors,
    .samples = kProducts,
    .tolerance = kFactorTolerance,
});

}  // namespace weft::ops
