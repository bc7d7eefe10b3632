// airy_ai, Airy's function Ai, and its slope Ai', which are the gradients of one another but for a factor. All in f64.
#include <limits>
#include <numbers>

#include "src/ops/elementwise/chebyshev.h"
#include "src/ops/elementwise/in_double.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/special_fits.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

// The fits of Ai and Ai', and where one ends and the next begins. Waves are left of the first of these, and what falls like e^-ζ is
// right of the third.
struct Fits {
  std::span<const double> low, near, middle, far, p, q;
};
constexpr Fits kAi = {kAiLow, kAiNear, kAiMiddle, kAiFar, kAiP, kAiQ};
constexpr Fits kSlope = {kAiSlopeLow, kAiSlopeNear, kAiSlopeMiddle, kAiSlopeFar, kAiSlopeP, kAiSlopeQ};
constexpr double kWaves = -5, kLow = -2.25, kNear = 1, kMiddle = 2.25;
// Ai of this is 0 in f64. The phase of what is below the other one is some 1e-7 off.
constexpr double kNothing = 200, kNoPhase = -1e16;

// A number as two, of which each product is exact (Veltkamp), and what a product has lost (Dekker, 1971).
struct Halves {
  Value high, low;
};
Halves HalvesOf(Builder& b, const Value& x) {
  const Value wide = Mul(b, x, 134217729);
  const Value high = Sub(b, wide, Sub(b, wide, x));
  return {high, Sub(b, x, high)};
}
Value Lost(Builder& b, const Value& x, const Value& y, const Value& product) {
  const Halves p = HalvesOf(b, x), q = HalvesOf(b, y);
  const Value first = Sub(b, Mul(b, p.high, q.high), product);
  return Add(b, Add(b, Add(b, first, Mul(b, p.high, q.low)), Mul(b, p.low, q.high)), Mul(b, p.low, q.low));
}

// ζ = 2/3 x^(3/2) as a sum of two numbers: e^-ζ and the phase of a wave need its digits behind the point.
struct Zeta {
  Value high, low;
};
Zeta ZetaOf(Builder& b, const Value& x) {
  const Value root = Sqrt(b, x), square = Mul(b, root, root);
  const Value rest = Div(b, Sub(b, Sub(b, x, square), Lost(b, root, root, square)), Mul(b, root, 2));
  const Value power = Mul(b, x, root), more = Add(b, Lost(b, x, root, power), Mul(b, x, rest));
  constexpr double kShare = 2.0 / 3, kShareMore = 3.700743415417188e-17;
  const Value high = Mul(b, power, kShare);
  const Value lost = Lost(b, power, FullLike(b, power, kShare), high);
  return {high, Add(b, Add(b, lost, Mul(b, more, kShare)), Mul(b, power, kShareMore))};
}

// The series of a fit on [low, high]. Of a width that is a power of two the argument is hardly rounded.
Value Between(Builder& b, const Value& x, double low, double high, std::span<const double> fit) {
  return ChebyshevSeries(b, Mul(b, Add(b, x, -(low + high) / 2), 2 / (high - low)), fit);
}

// The fourth root of x for Ai', one over it for Ai.
template <bool slope>
Value Size(Builder& b, const Value& x) {
  const Value root = Sqrt(b, Sqrt(b, x));
  return slope ? root : Div(b, 1, root);
}

// From 1 on, DLMF 9.7.5 and 9.7.6: e^-ζ times a power, times a fit in x or in 4.5 / ζ - 1.
template <bool slope>
Value Falling(Builder& b, const Value& x, const Fits& fits) {
  const Zeta zeta = ZetaOf(b, x);
  const Value decay = Mul(b, Exp(b, Neg(b, zeta.high)), Sub(b, 1, zeta.low));
  const Value beyond = Compare(b, Direction::kGt, x, kMiddle);
  const Value middle = Between(b, Select(b, beyond, FullLike(b, x, kMiddle), x), kNear, kMiddle, fits.middle);
  const Value held = Select(b, beyond, zeta.high, FullLike(b, x, 4.5));
  const Value far = ChebyshevSeries(b, Add(b, Div(b, 4.5, held), -1), fits.far);
  return Mul(b, Mul(b, decay, Size<slope>(b, x)), Select(b, beyond, far, middle));
}

// Left of -5, DLMF 9.7.9 and 9.7.10: a wave of ζ - π / 4 for x = -z, whose parts are fits in 250 / z³ - 1.
template <bool slope>
Value Wave(Builder& b, const Value& z, const Fits& fits) {
  const Zeta zeta = ZetaOf(b, z);
  const auto sine = [&](const Value& x) { return Unary(b, kOp_sin, x); };
  const auto cosine = [&](const Value& x) { return Unary(b, kOp_cos, x); };
  const Value turn = sine(zeta.low), rest = cosine(zeta.low), sin = sine(zeta.high), cos = cosine(zeta.high);
  const Value s = Add(b, Mul(b, sin, rest), Mul(b, cos, turn)), c = Sub(b, Mul(b, cos, rest), Mul(b, sin, turn));
  const Value t = Add(b, Div(b, 250, Mul(b, Square(b, z), z)), -1);
  const Value p = ChebyshevSeries(b, t, fits.p), q = Div(b, ChebyshevSeries(b, t, fits.q), zeta.high);
  const Value across = Add(b, c, s), along = Sub(b, s, c);  // sqrt(2) times cos and sin of ζ - π / 4
  const Value wave = slope ? Sub(b, Mul(b, along, p), Mul(b, across, q)) : Add(b, Mul(b, across, p), Mul(b, along, q));
  return Mul(b, Mul(b, wave, Size<slope>(b, z)), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
}

template <bool slope>
Value Airy(Builder& b, const Value& x) {
  const Fits& fits = slope ? kSlope : kAi;
  const auto within = [&](double low, double high) {
    return And(b, Compare(b, Direction::kGt, x, low), Compare(b, Direction::kLe, x, high));
  };
  const auto held = [&](const Value& where, double otherwise) {
    return Select(b, where, x, FullLike(b, x, otherwise));
  };
  const Value wave = within(kNoPhase, kWaves), low = within(kWaves, kLow), near = within(kLow, kNear);
  const Value falling = within(kNear, kNothing);
  const double inf = std::numeric_limits<double>::infinity();
  const Value lost = slope ? Compare(b, Direction::kLe, x, kNoPhase) : within(-inf, kNoPhase);
  Value y = Select(b, lost, FullLike(b, x, std::numeric_limits<double>::quiet_NaN()), FullLike(b, x, 0));
  y = Select(b, falling, Falling<slope>(b, held(falling, kMiddle), fits), y);
  y = Select(b, near, Between(b, held(near, 0), -3, kNear, fits.near), y);
  y = Select(b, low, Between(b, held(low, -3), -7, kNear, fits.low), y);
  y = Select(b, wave, Wave<slope>(b, Neg(b, held(wave, -8)), fits), y);
  return Select(b, Compare(b, Direction::kLe, Abs(b, x), inf), y, x);
}

Value SlopeOf(Builder& b, const Value& x, const Value&) { return Unary(b, kOp_airy_ai_slope, x); }
// Ai'' = x Ai; 0 at infinity, too.
Value SecondOf(Builder& b, const Value& x, const Value&) {
  return Mul(b, Minimum(b, x, FullLike(b, x, kNothing)), Unary(b, kOp_airy_ai, x));
}

constexpr Sample kSamples[] = {{"T[2,3]", -2, 2}, {"T[]", -12, -9, false}, {"T[0,3]", 0.2, 12}, {"T[131]", -8, 4}};
constexpr Tolerance kTolerance = {.f32 = 1e-6, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-7};

}  // namespace

constinit const OpDef kOp_airy_ai = Special({
    .name = "weft.airy_ai",
    .c_name = "airy_ai",
    .doc = "Elementwise Airy's function Ai, a solution of y'' = x y; 0 at both infinities, NaN of numbers below -1e16.",
    .example = "y = wf_airy_ai(s, x);",
    .gradient = GradientUnary<SlopeOf>,
    .expand = ExpandUnary<InDouble<Airy<false>>>,
    .samples = kSamples,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_airy_ai_slope = Special({
    .name = "weft.airy_ai_slope",
    .c_name = "airy_ai_slope",
    .doc = "Elementwise derivative of Airy's function Ai; NaN of numbers below -1e16.",
    .example = "y = wf_airy_ai_slope(s, x);",
    .gradient = GradientUnary<SecondOf>,
    .expand = ExpandUnary<InDouble<Airy<true>>>,
    .samples = kSamples,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
