// igamma, igammac: the incomplete gamma functions, in f64 whatever the type is, and how they depend on their first operand.
#include <cmath>
#include <limits>
#include <numbers>

#include "src/ops/control/repeat.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/stirling.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kEpsilon = 0x1p-53;
// From here on what depends on alpha goes by a formula; sums take some sqrt(a) terms.
constexpr double kLarge = 1e4;
constexpr double kMostTerms = 20000;

Value Wide(Builder& b, const Value& x) { return Convert(b, x, DType::kF64); }
Value Only(Builder& b, const Value& where, const Value& x, double otherwise) {
  return Select(b, where, x, FullLike(b, x, otherwise));
}
Value Less(Builder& b, const Value& x, double y) { return Compare(b, Direction::kLt, x, y); }
// Tells where to go on: where it is active, as long as the number of the term is within bounds.
Value GoesOn(Builder& b, std::span<const Value> carried) {
  return And(b, carried[0], BroadcastTo(b, Less(b, carried[1], kMostTerms), carried[0].dims()));
}

// x^a e^-x / Γ(a), x times the density, for a > 0 and x > 0. Large a go by Stirling's formula, where nothing large cancels.
Value Density(Builder& b, const Value& a, const Value& x) {
  const Value large = Compare(b, Direction::kGe, a, 10);
  const Value few = Select(b, large, FullLike(b, a, 1), a);
  const Value direct = Exp(b, Sub(b, Sub(b, Mul(b, few, Log(b, x)), x), Unary(b, kOp_lgamma, few)));
  const Value many = Only(b, large, a, 10), t = Div(b, Sub(b, x, many), many);
  const Value power = Exp(b, Sub(b, Mul(b, many, Log1pLess(b, t, Div(b, x, many))), Binet(b, many)));
  const Value root = Sqrt(b, Mul(b, many, 0.5 * std::numbers::inv_pi));
  return Select(b, large, Mul(b, root, power), direct);
}

// Value and, where it is asked for, derivative along a.
struct Sum {
  Value value, slope;
};

// Σ x^n / ((a + 1) … (a + n)), n from 0 on, where `active`.
Sum Series(Builder& b, const Value& active, const Value& a, const Value& x, bool sloped) {
  const Value one = FullLike(b, a, 1), none = FullLike(b, a, 0);
  if (!one) return {};
  Values carried = {active, Scalar(b, DType::kF64, 0), one, one};
  if (sloped) carried.insert(carried.end(), {none, none});  // Σ 1 / (a + i) so far, and the derivative
  const Values found = Repeat(b, "series", carried, {a, x}, GoesOn,
                              [&](Builder& in, std::span<const Value> c, std::span<const Value> o) -> Values {
                                const Value n = Add(in, c[1], 1);
                                const Value under = Add(in, o[0], BroadcastTo(in, n, o[0].dims()));
                                const Value term = Mul(in, c[2], Div(in, o[1], under));
                                Values next = {Value(), n, term, Add(in, c[3], term)};
                                Value most = term;
                                if (sloped) {
                                  const Value parts = Add(in, c[4], Div(in, 1, under));
                                  most = Mul(in, term, Add(in, parts, 1));
                                  next.insert(next.end(), {parts, Sub(in, c[5], Mul(in, term, parts))});
                                }
                                next[0] = And(in, c[0], Compare(in, Direction::kGt, most, Mul(in, next[3], kEpsilon)));
                                return next;
                              });
  return {found[3], sloped ? found[5] : Value()};
}

// 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - …))), where `active`, by Lentz; DLMF 8.9.2.
// Carried: active, i, b, c, d, h, and the derivatives of c, d, h.
Sum Fraction(Builder& b, const Value& active, const Value& a, const Value& x, bool sloped) {
  const Value first = Add(b, Sub(b, x, a), 1);
  if (!first) return {};
  const Value d = Div(b, 1, first);
  Values carried = {active, Scalar(b, DType::kF64, 0), first, FullLike(b, a, 1e300), d, d};
  if (sloped) carried.insert(carried.end(), {FullLike(b, a, 0), Square(b, d), Square(b, d)});
  const Values found = Repeat(b, "fraction", carried, {a}, GoesOn,
                              [&](Builder& in, std::span<const Value> v, std::span<const Value> o) -> Values {
                                const Value i = Add(in, v[1], 1), all = BroadcastTo(in, i, o[0].dims());
                                const Value over = Mul(in, all, Sub(in, o[0], all)), base = Add(in, v[2], 2);
                                const Value quotient = Div(in, over, v[3]);
                                const Value d = Div(in, 1, Add(in, Mul(in, over, v[4]), base));
                                const Value c = Add(in, base, quotient);
                                const Value change = Mul(in, c, d), h = Mul(in, v[5], change);
                                Value more = Compare(in, Direction::kGt, Abs(in, Add(in, change, -1)), 4 * kEpsilon);
                                Values next = {Value(), i, base, c, d, h};
                                if (sloped) {
                                  const Value inner = Add(in, Add(in, Mul(in, all, v[4]), Mul(in, over, v[7])), -1);
                                  const Value d1 = Neg(in, Mul(in, inner, Square(in, d)));
                                  const Value c1 = Add(in, Div(in, Sub(in, all, Mul(in, quotient, v[6])), v[3]), -1);
                                  const Value change1 = Add(in, Mul(in, c1, d), Mul(in, c, d1));
                                  const Value h1 = Add(in, Mul(in, v[8], change), Mul(in, v[5], change1));
                                  const Value moved = Abs(in, Sub(in, h1, v[8]));
                                  const Value least = Mul(in, Add(in, Abs(in, h1), Abs(in, h)), 4 * kEpsilon);
                                  more = Either(in, more, Compare(in, Direction::kGt, moved, least));
                                  next.insert(next.end(), {c1, d1, h1});
                                }
                                next[0] = And(in, v[0], more);
                                // An element that has come to its end stays.
                                for (size_t k = 2; k < next.size(); ++k) next[k] = Select(in, v[0], next[k], v[k]);
                                return next;
                              });
  return {found[5], sloped ? found[8] : Value()};
}

// Where operands are inside, and by which of the two it goes there.
struct Sides {
  Value valid, series, a, x;
};
Sides SidesOf(Builder& b, const Value& a, const Value& x) {
  const auto inside = [&](const Value& v) { return And(b, Compare(b, Direction::kGt, v, 0), Less(b, v, kInf)); };
  Sides sides;
  sides.valid = And(b, inside(a), inside(x));
  sides.a = Only(b, sides.valid, a, 1);
  sides.x = Only(b, sides.valid, x, 1);
  sides.series = Compare(b, Direction::kLt, sides.x, Add(b, sides.a, 1));
  return sides;
}

// The lower function, or the upper one, of f64 operands.
Value Incomplete(Builder& b, const Value& a, const Value& x, bool upper) {
  const Sides at = SidesOf(b, a, x);
  if (!at.series) return {};
  const Value other = Call(b, kOp_bitwise_not, {at.series});
  const Value density = Density(b, at.a, at.x);
  const Value sum = Series(b, And(b, at.valid, at.series), at.a, Only(b, at.series, at.x, 0), false).value;
  const Value fraction =
      Fraction(b, And(b, at.valid, other), Only(b, other, at.a, 1), Only(b, other, at.x, 3), false).value;
  const Value below = Div(b, Mul(b, density, sum), at.a), above = Mul(b, density, fraction);
  const Value inside =
      upper ? Select(b, at.series, Sub(b, 1, below), above) : Select(b, at.series, below, Sub(b, 1, above));
  // The ends: nothing is below x = 0, all of it is below infinity or where a = 0, nothing where a is infinite.
  const Value none = FullLike(b, x, upper ? 1 : 0), all = FullLike(b, x, upper ? 0 : 1);
  const auto is = [&](const Value& v, double number) { return Compare(b, Direction::kEq, v, number); };
  const Value unsaid = Either(b, And(b, is(a, 0), is(x, 0)), And(b, is(a, kInf), is(x, kInf)));
  const Value known = And(b, Compare(b, Direction::kGe, a, 0), Compare(b, Direction::kGe, x, 0));
  const Value nothing = Either(b, is(x, 0), is(a, kInf));
  const Value end =
      Select(b, And(b, known, Call(b, kOp_bitwise_not, {unsaid})), Select(b, nothing, none, all), FullLike(b, x, kNan));
  return Select(b, at.valid, inside, end);
}

template <bool upper>
Value Expansion(Builder& b, const Value& a, const Value& x) {
  const Value y = Incomplete(b, Wide(b, a), Wide(b, x), upper);
  return y ? Convert(b, y, x.dtype()) : y;
}

// x^(a - 1) e^-x / Γ(a) of ordinary operations, which have gradients of their own; x held where the density is 0 anyway.
Value DensityOf(Builder& b, const Value& a, const Value& x) {
  const Value held = Minimum(b, x, FullLike(b, x, 1e300));
  const Value power = Call(b, kOp_xlogy, {Add(b, a, -1), held});
  return Exp(b, Sub(b, Sub(b, power, held), Unary(b, kOp_lgamma, a)));
}

// The lower function grows by the density along x; along a by -slope times x times the density, with gamma_slope's slope.
template <bool upper>
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value &a = call.operands[0], &x = call.operands[1];
  const Value g = upper ? Neg(b, call.cotangents[0]) : call.cotangents[0];
  const Value wide_a = Wide(b, a), wide_x = Wide(b, x), density = DensityOf(b, wide_a, wide_x);
  if (call.wanted[1]) grads[1] = Mul(b, g, Convert(b, density, x.dtype()));
  if (!call.wanted[0]) return absl::OkStatus();
  // At the ends of x nothing depends on a.
  const Value inside = And(b, Compare(b, Direction::kGt, wide_x, 0), Less(b, wide_x, kInf));
  const Value held = Only(b, inside, wide_x, 1);
  const Value slope = Call(b, kOp_gamma_slope, {wide_a, Log(b, held)});
  const Value along = Neg(b, Mul(b, Mul(b, slope, held), DensityOf(b, wide_a, held)));
  grads[0] = Mul(b, g, Convert(b, Only(b, inside, along, 0), a.dtype()));
  return absl::OkStatus();
}

// --- gamma_slope

// The slope where alpha is large, by Wilson and Hilferty's formula: the cube root of x / alpha is nearly normal.
Value SlopeOfLarge(Builder& b, const Value& a, const Value& log) {
  const Value root = Exp(b, Mul(b, Sub(b, log, Log(b, a)), 1.0 / 3)), inverse = Div(b, 1, a);
  const Value ninth = Mul(b, inverse, 1.0 / 9);
  const Value from = Mul(b, Add(b, Add(b, root, -1), ninth), 0.5);
  const Value rest = Div(b, Mul(b, Mul(b, inverse, Sub(b, ninth, from)), 3), root);
  return Add(b, inverse, rest);
}

// With P = x^a e^-x / Γ(a + 1) Σ and 1 - P = x^a e^-x / Γ(a) h: what a does to P, over -x times the density.
Value Slope(Builder& b, const Value& alpha, const Value& given) {
  const Value valid = And(b, And(b, Compare(b, Direction::kGt, alpha, 0), Less(b, alpha, kInf)), Less(b, given, 700));
  const Value a = Only(b, valid, alpha, 1), log = Only(b, valid, given, 0);
  if (!log) return {};
  const Value x = Exp(b, log), large = Compare(b, Direction::kGt, a, kLarge);
  const Value few = Call(b, kOp_bitwise_not, {large}), held = Only(b, few, a, 1);
  const Value series = And(b, few, Compare(b, Direction::kLt, x, Add(b, held, 1)));
  const Value fraction = And(b, few, Call(b, kOp_bitwise_not, {series}));
  const Sum sum = Series(b, series, held, Only(b, series, x, 0), true);
  const Sum part = Fraction(b, fraction, Only(b, fraction, held, 1), Only(b, fraction, x, 3), true);
  const Value psi = Unary(b, kOp_digamma, held);
  const auto by = [&](const Sum& of, const Value& from) {
    return Add(b, Mul(b, of.value, Sub(b, log, from)), of.slope);
  };
  const Value below = Neg(b, Div(b, by(sum, Add(b, psi, Div(b, 1, held))), held));
  const Value inside = Select(b, series, below, by(part, psi));
  return Only(b, valid, Select(b, large, SlopeOfLarge(b, a, log), inside), kNan);
}

Value SlopeExpansion(Builder& b, const Value& alpha, const Value& log) {
  const Value y = Slope(b, Wide(b, alpha), Wide(b, log));
  return y ? Convert(b, y, alpha.dtype()) : y;
}

absl::Status NoSecond(const GradCall&, std::span<Value>) {
  return UserErrorOf(absl::StatusCode::kUnimplemented,
                     "what igamma and gamma's numbers are along their first operand has no further gradient");
}

constexpr OperandDef kTwo[] = {{"a", kF | kWhole, "parameter, from 0 on"}, {"x", kF | kWhole, "where to, from 0 on"}};
constexpr OperandDef kDrawn[] = {{"alpha", kF | kWhole, "shape parameter, above 0"},
                                 {"log_x", kF | kWhole, "logarithm of a number of that gamma distribution"}};
constexpr Sample kSamples[] = {
    {"T[2,3] T[2,3]", 0.5, 4}, {"T[] T[]", 0.5, 4}, {"T[0,3] T[3]", 0.5, 4}, {"T[131] T[131]", 0.3, 9}};
constexpr Sample kSlopes[] = {
    {"T[2,3] T[2,3]", 0.5, 1.5, false}, {"T[] T[]", 0.5, 1.5, false}, {"T[0,3] T[0,3]", 0.5, 1, false}};
constexpr Tolerance kTolerance = {.f32 = 2e-6, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-7};
constexpr Absent kReached[] = {{Part::kReference, Reason::kExpands},
                               {Part::kStableHlo, Reason::kExpands},
                               {Part::kExample, Reason::kMovedByExpansionOf}};

}  // namespace

constinit const OpDef kOp_igamma = Special({
    .name = "weft.igamma",
    .c_name = "igamma",
    .doc =
        "Elementwise lower regularised incomplete gamma function, the share of the gamma distribution of shape a below "
        "x; NaN of negative operands. Computed in f64 by its series or continued fraction, a up to 1e6. Gradients along "
        "both; that along a has none of its own. Source: DLMF 8.11.4, 8.9.2.",
    .example = "p = wf_igamma(s, a, x);",
    .operands = kTwo,
    .rule = OperandRule::kBroadcast,
    .gradient = Gradient<false>,
    .expand = ExpandBinary<Expansion<false>>,
    .samples = kSamples,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});
constinit const OpDef kOp_igammac = Special({
    .name = "weft.igammac",
    .c_name = "igammac",
    .doc = "Elementwise upper regularised incomplete gamma function, 1 - igamma(a, x), to full accuracy where that is "
           "small and x is above a; NaN of negative operands. See igamma.",
    .example = "q = wf_igammac(s, a, x);",
    .operands = kTwo,
    .rule = OperandRule::kBroadcast,
    .gradient = Gradient<true>,
    .expand = ExpandBinary<Expansion<true>>,
    .samples = kSamples,
    .tolerance = kTolerance,
    .narrow_in_f64 = true,
});

// The growth of the logarithm of a gamma number with alpha, the share of the distribution below it held.
constinit const OpDef kOp_gamma_slope = []() consteval {
  OpDef op = Special({
      .name = "weft.gamma_slope",
      .c_name = "gamma_slope",
      .doc =
          "How the logarithm of a number of a gamma distribution grows with its shape parameter, the share below it held: "
          "the implicit gradient of gamma. Above 1e4 by Wilson and Hilferty's formula.",
      .operands = kDrawn,
      .gradient = NoSecond,
      .expand = ExpandBinary<SlopeExpansion>,
      .samples = kSlopes,
      .tolerance = {.f32 = 1e-5, .f64 = 1e-11, .bf16 = 3e-2, .f16 = 6e-3, .absolute = 1e-6},
      .exported = false,
  });
  op.absent = kReached;
  return op;
}();

}  // namespace weft::ops
