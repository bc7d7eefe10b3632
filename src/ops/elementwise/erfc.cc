// erfc: 1 - erf(x), without cancellation, and what it shares with erfcx and the normal distribution.
#include <limits>
#include <span>

#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"

namespace weft::ops {
namespace {

using namespace ir;

// From where on 1 - erf(x) has lost digits.
constexpr double kJoin = 0.4769362762044699;  // erf is 1/2 there

// e^(factor x²) is bell (1 + more). The square of the leading half of x's digits is exact; the rest of it is small.
struct Bells {
  Value bell, more;
};
Bells BellsOf(Builder& b, const Value& x, double factor) {
  const bool wide = x.dtype() == DType::kF64;
  const Value half = Call(b, kOp_reduce_precision, {x}, {int64_t{wide ? 11 : 8}, int64_t{wide ? 25 : 11}});
  const Value rest = Mul(b, Mul(b, Sub(b, x, half), Add(b, x, half)), factor);
  constexpr double kTerms[] = {1.0 / 24, 1.0 / 6, 1.0 / 2, 1};  // below 2^-53 the next of them, f32: below 2^-26
  return {Exp(b, Mul(b, Square(b, half), factor)), Mul(b, rest, Polynomial(b, rest, kTerms))};
}

// The argument of the fit is 1 - 7.5 / (a + 3.75), which is 1 at infinity. After Shepherd, Laframboise, Chebyshev approximation of
// (1 + 2 x) exp(x²) erfc(x) (1981), whose 2 is 1 here: then the fit has nearly no slope at 0, where t has a rounding error.
Value Scaled(Builder& b, const Value& a, std::span<const double> fit) {
  const Value t = Sub(b, 1, Div(b, 7.5, Add(b, a, 3.75)));
  return Div(b, Polynomial(b, t, fit), Add(b, a, 1));
}

// erfc of a >= 0. Of f32 all but the exponential is in f64, so that only its rounding counts and the result's.
Value Tail(Builder& b, const Value& a) {
  if (a.dtype() == DType::kF64) return Mul(b, ErfcxAbove(b, a), ExpOfSquare(b, a, -1));
  const auto wide = [&](const Value& x) { return Convert(b, x, DType::kF64); };
  const Bells bells = BellsOf(b, a, -1);
  const Value factor = Mul(b, Scaled(b, wide(a), kErfcx32), Add(b, wide(bells.more), 1));
  return Convert(b, Mul(b, wide(bells.bell), factor), a.dtype());
}

Value Erfc(Builder& b, const Value& x) {
  const Value a = Abs(b, x), end = FullLike(b, x, x.dtype() == DType::kF64 ? 28 : 11);
  const Value small = Tail(b, Minimum(b, a, end));
  const Value tail = Select(b, Compare(b, Direction::kGe, a, end), FullLike(b, x, 0), small);
  const Value far = Select(b, Compare(b, Direction::kLt, x, 0), Sub(b, 2, tail), tail);
  return Select(b, Compare(b, Direction::kGt, a, kJoin), far, Sub(b, 1, Unary(b, kOp_erf, x)));
}

Value Slope(Builder& b, const Value& x, const Value&) { return Neg(b, Bell(b, x)); }

constexpr auto kSamples = UnarySamples(-3, 3);

}  // namespace

Value ExpOfSquare(Builder& b, const Value& x, double factor) {
  const Bells bells = BellsOf(b, x, factor);
  return Add(b, bells.bell, Mul(b, bells.bell, bells.more));
}
Value ErfcxAbove(Builder& b, const Value& a) { return Scaled(b, a, kErfcx); }

// For a negative number it is 2 e^(x²) - erfcx(-x).
Value ErfcxOf(Builder& b, const Value& x) {
  const Value right = ErfcxAbove(b, Abs(b, x)), negative = Compare(b, Direction::kLt, x, 0);
  const Value far = Compare(b, Direction::kLt, x, -26.63);  // infinite there
  const Value held = Select(b, And(b, negative, Compare(b, Direction::kGe, x, -26.63)), x, FullLike(b, x, 0));
  const Value left = Sub(b, Mul(b, ExpOfSquare(b, held, 1), 2), right);
  return Select(b, far, FullLike(b, x, std::numeric_limits<double>::infinity()), Select(b, negative, left, right));
}

Value Bell(Builder& b, const Value& x) {
  const BySize by(b, x, 30);  // e^-900 is 0 in f64
  const Value bell = Mul(b, Exp(b, Neg(b, Square(b, by.within))), 1.12837916709551257390);
  return Select(b, by.far, FullLike(b, x, 0), bell);
}

constinit const OpDef kOp_erfc = Special({
    .name = "weft.erfc",
    .c_name = "erfc",
    .doc = "Elementwise complementary error function 1 - erf(x), to full accuracy where that is small.",
    .example = "y = wf_erfc(s, x);",
    .gradient = GradientUnary<Slope>,
    .expand = ExpandUnary<Erfc>,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-7},
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
