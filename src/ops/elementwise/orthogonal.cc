// orthogonal_polynomial: Chebyshev's, Hermite's, Laguerre's and Legendre's, and their derivatives, by their recurrence in f64.
#include <limits>

#include "src/ops/control/repeat.h"
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kFamilies[] = {"chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w",
                                          "hermite_h",   "hermite_he",  "laguerre_l",  "legendre_p"};
enum class Family : int64_t { kT, kU, kV, kW, kH, kHe, kL, kP };
constexpr int64_t kMostDerivatives = 8;
constexpr double kMostDegrees = 100000;
constexpr OperandDef kOperands[] = {{"x", kF, "operand"}, {"n", kF, "degrees, cut to whole numbers"}};
constexpr AttrDef kAttrs[] = {{"family", AttrType::kEnum, "which polynomials", true, {}, kFamilies},
                              {"derivative", AttrType::kInt, "which derivative along x, 0 to 8", false, "0"}};

Family FamilyOf(const Attrs& attrs) { return static_cast<Family>(Attr<kAttrs, "family">(attrs)); }

absl::Status Infer(const InferCall& call, Types* results) {
  const int64_t derivative = Attr<kAttrs, "derivative">(call.attrs);
  if (derivative < 0 || derivative > kMostDerivatives) {
    return UserError("derivative is ", derivative, "; it must be 0 to ", kMostDerivatives);
  }
  return InferSame(call, results);
}

// The polynomial of degree 1.
struct First {
  double slope, summand;
};
First FirstOf(Family family) {
  switch (family) {
    case Family::kU: return {2, 0};
    case Family::kV: return {2, -1};
    case Family::kW: return {2, 1};
    case Family::kH: return {2, 0};
    case Family::kL: return {-1, 1};
    default: return {1, 0};
  }
}

// The polynomial of degree k + 1 is (slope x + summand) times that of degree k, less `before` times that of degree k - 1: DLMF 18.9.
struct Step {
  Value slope, summand, before;
};
Step StepOf(Builder& b, Family family, const Value& k) {
  const auto number = [&](double value) { return FullLike(b, k, value); };
  const Value more = Add(b, k, 1), odd = Add(b, Mul(b, k, 2), 1);
  switch (family) {
    case Family::kH: return {number(2), number(0), Mul(b, k, 2)};
    case Family::kHe: return {number(1), number(0), k};
    case Family::kL: return {Div(b, -1, more), Div(b, odd, more), Div(b, k, more)};
    case Family::kP: return {Div(b, odd, more), number(0), Div(b, k, more)};
    default: return {number(2), number(0), number(1)};
  }
}

// Carried: where there is a higher degree, the degree, then the polynomial of that degree and its derivatives, then those before.
Value Highest(Builder& b, Family family, int64_t derivative, const Value& x, const Value& n) {
  const First first = FirstOf(family);
  const Value none = FullLike(b, x, 0), one = FullLike(b, x, 1);
  const auto orders = static_cast<size_t>(derivative) + 1;
  Values carried = {Compare(b, Direction::kGt, n, 1), Scalar(b, DType::kF64, 1)};
  for (size_t m = 0; m < orders; ++m) {
    carried.push_back(m == 0   ? Add(b, Mul(b, x, first.slope), first.summand)
                      : m == 1 ? FullLike(b, x, first.slope)
                               : none);
  }
  for (size_t m = 0; m < orders; ++m) carried.push_back(m == 0 ? one : none);
  const Values found = Repeat(
      b, "degrees", carried, {x, n},
      [](Builder& in, std::span<const Value> c) {
        return And(in, c[0], BroadcastTo(in, Compare(in, Direction::kLt, c[1], kMostDegrees), c[0].dims()));
      },
      [&](Builder& in, std::span<const Value> c, std::span<const Value> o) -> Values {
        const Dims& dims = o[0].dims();
        const Step step = StepOf(in, family, c[1]);
        const Value slope = BroadcastTo(in, step.slope, dims), before = BroadcastTo(in, step.before, dims);
        const Value factor = Add(in, Mul(in, slope, o[0]), BroadcastTo(in, step.summand, dims));
        const Value next = Add(in, c[1], 1);
        Values all = {And(in, c[0], Compare(in, Direction::kGt, o[1], BroadcastTo(in, next, dims))), next};
        for (size_t m = 0; m < orders; ++m) {
          Value y = Sub(in, Mul(in, factor, c[2 + m]), Mul(in, before, c[2 + orders + m]));
          if (m > 0) y = Add(in, y, Mul(in, Mul(in, slope, c[1 + m]), static_cast<double>(m)));
          all.push_back(Select(in, c[0], y, c[2 + m]));
        }
        for (size_t m = 0; m < orders; ++m) all.push_back(Select(in, c[0], c[2 + m], c[2 + orders + m]));
        return all;
      });
  const Value constant = derivative == 0 ? one : none;
  const Value high = Select(b, Compare(b, Direction::kEq, n, 0), constant, found[1 + orders]);
  return Select(b, Compare(b, Direction::kLt, n, 0), none, high);
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const DType dtype = call.operands[0].dtype();
  const Value x = Convert(b, call.operands[0], DType::kF64);
  const Value n = Unary(b, kOp_trunc, Convert(b, call.operands[1], DType::kF64));
  if (!x || !n) return b.status();
  const Value y = Highest(b, FamilyOf(call.attrs), Attr<kAttrs, "derivative">(call.attrs), x, n);
  const Value known = Compare(b, Direction::kEq, n, n);
  results[0] = Convert(b, Select(b, known, y, FullLike(b, x, std::numeric_limits<double>::quiet_NaN())), dtype);
  return b.status();
}

// Between whole numbers the degree is one constant: along it the gradient is 0.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  if (call.wanted[1]) grads[1] = FullLike(call.b, call.operands[1], 0);
  if (!call.wanted[0]) return absl::OkStatus();
  const int64_t derivative = Attr<kAttrs, "derivative">(call.node.attrs());
  if (derivative == kMostDerivatives) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "derivatives of orthogonal polynomials end at the ",
                       kMostDerivatives, "th");
  }
  const Value slope = Call(call.b, kOp_orthogonal_polynomial, {call.operands[0], call.operands[1]},
                           {Attr<kAttrs, "family">(call.node.attrs()), derivative + 1});
  grads[0] = Mul(call.b, call.cotangents[0], slope);
  return absl::OkStatus();
}

// The last has degrees between whole numbers: differences along them are 0.
constexpr Sample kSamples[] = {{"T[2,3] T[3] family=legendre_p", 0.1, 0.9, false},
                               {"T[131] T[131] family=chebyshev_t", 0.1, 5.9, false},
                               {"T[0,3] T[3] family=hermite_h", 0.1, 0.9, false},
                               {"T[] T[] family=laguerre_l derivative=1", 3.1, 3.9, false},
                               {"T[9] T[9] family=hermite_he derivative=2", 1.1, 4.9, false},
                               {"T[4] T[4] family=chebyshev_w", 1.1, 2}};

}  // namespace

constinit const OpDef kOp_orthogonal_polynomial = Special({
    .name = "weft.orthogonal_polynomial",
    .c_name = "orthogonal_polynomial",
    .doc =
        "Elementwise orthogonal polynomial of degree n at x, or a derivative of it along x, with NumPy broadcasting: "
        "Chebyshev's of the first to the fourth kind, Hermite's of physics and of probability, Laguerre's, Legendre's. Degrees "
        "are cut to whole numbers, below 0 there is the polynomial 0; up to 100,000. Source: DLMF 18.9.",
    .example = "y = wf_orthogonal_polynomial(s, x, n, WEFT_ORTHOGONAL_POLYNOMIAL_FAMILY_LEGENDRE_P);",
    .operands = kOperands,
    .attrs = kAttrs,
    .rule = OperandRule::kBroadcast,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6},
});

}  // namespace weft::ops
