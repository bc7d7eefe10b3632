// See complex.h. Sources: W. Kahan, Branch cuts for complex elementary functions (1987); R. L. Smith, Algorithm 116 (1962); C99,
// Annex G.
#include "src/ops/complex.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "src/ops/hyperbolic.h"

namespace weft::ops {
namespace {

using ir::Builder;
using ir::Value;

constexpr double kInf = std::numeric_limits<double>::infinity();

bool Wide(const Value& x) { return x.dtype() == DType::kF64; }
Value Is(Builder& b, Direction direction, const Value& x, double y) { return Compare(b, direction, x, y); }
Value Or(Builder& b, const Value& x, const Value& y) { return Call(b, kOp_bitwise_or, {x, y}); }
Value Not(Builder& b, const Value& x) { return Unary(b, kOp_bitwise_not, x); }
Value IsNan(Builder& b, const Value& x) { return Compare(b, Direction::kNe, x, x); }
Value IsInf(Builder& b, const Value& x) { return Is(b, Direction::kEq, Abs(b, x), kInf); }
Value IsFinite(Builder& b, const Value& x) { return Unary(b, kOp_is_finite, x); }
Value IsZero(Builder& b, const Value& x) { return Is(b, Direction::kEq, x, 0); }
Value Log1p(Builder& b, const Value& x) { return Unary(b, kOp_log1p, x); }
Value Sine(Builder& b, const Value& x) { return Unary(b, kOp_sin, x); }
Value Cosine(Builder& b, const Value& x) { return Unary(b, kOp_cos, x); }
Value Atan2(Builder& b, const Value& y, const Value& x) { return Call(b, kOp_atan2, {y, x}); }

Planes Choose(Builder& b, const Value& condition, const Planes& x, const Planes& y) {
  return {Select(b, condition, x.re, y.re), Select(b, condition, x.im, y.im)};
}
Planes Scaled(Builder& b, const Planes& x, const Value& by) { return {Mul(b, x.re, by), Mul(b, x.im, by)}; }
Planes AddReal(Builder& b, const Planes& x, double y) { return {Add(b, x.re, y), x.im}; }
Planes TimesI(Builder& b, const Planes& x) { return {Neg(b, x.im), x.re}; }
Planes OverI(Builder& b, const Planes& x) { return {x.im, Neg(b, x.re)}; }

// The magnitude of x with the sign of y, that of a zero, too.
Value WithSign(Builder& b, const Value& x, const Value& y) {
  const DType bits = Wide(x) ? DType::kU64 : DType::kU32;
  HostTensor one(bits, {});
  one.SetUnsigned(0, uint64_t{1} << (BitsOf(bits) - 1));
  const Value mask = BroadcastInDim(b, Constant(b, std::move(one)), x.dims(), {});
  const auto image = [&](const Value& v) { return Call(b, kOp_bitcast_convert, {v}, {bits}); };
  const Value sign = And(b, image(y), mask), magnitude = image(Abs(b, x));
  return Call(b, kOp_bitcast_convert, {Or(b, sign, magnitude)}, {x.dtype()});
}

// log |x|. Where |x| is near 1, by its distance from it.
Value LogAbs(Builder& b, const Planes& x) {
  const Value p = Abs(b, x.re), q = Abs(b, x.im);
  const Value most = Maximum(b, p, q), least = Minimum(b, p, q);
  const Value ratio = Select(b, IsZero(b, most), FullLike(b, most, 0), Div(b, least, most));
  const Value far = Add(b, Log(b, most), Mul(b, Log1p(b, Mul(b, ratio, ratio)), 0.5));
  const Value away = Add(b, Mul(b, Add(b, most, -1), Add(b, most, 1)), Mul(b, least, least));
  const Value is_near = And(b, Is(b, Direction::kGt, most, 0.5), Is(b, Direction::kLt, most, 2));
  const Value finite = Select(b, is_near, Mul(b, Log1p(b, away), 0.5), far);
  return Select(b, Or(b, IsInf(b, p), IsInf(b, q)), FullLike(b, p, kInf), finite);
}

// e^re times f, for a factor f of at most 1: it overflows only where the product does.
Value ExpTimes(Builder& b, const Value& re, const Value& f) {
  const Value root = Exp(b, Mul(b, re, 0.5));
  const Value product = Mul(b, Mul(b, root, f), root);
  return Select(b, Is(b, Direction::kEq, re, -kInf), FullLike(b, re, 0), product);
}

// The same for the cosine of an angle that may be no number: infinite where e^re is, as Annex G has it.
Value ExpTimesCosine(Builder& b, const Value& re, const Value& cosine) {
  const Value lost = And(b, Is(b, Direction::kEq, re, kInf), IsNan(b, cosine));
  return Select(b, lost, FullLike(b, re, kInf), ExpTimes(b, re, cosine));
}

// A power of two that takes x to where sums of its parts do not overflow and these have all their digits.
Value Moderating(Builder& b, const Planes& x) {
  const bool wide = Wide(x.re);
  const Value most = Maximum(b, Abs(b, x.re), Abs(b, x.im));
  const Value grown = Select(b, Is(b, Direction::kLt, most, wide ? 0x1p-900 : 0x1p-60),
                             FullLike(b, most, wide ? 0x1p110 : 0x1p60), FullLike(b, most, 1));
  return Select(b, Is(b, Direction::kGt, most, wide ? 0x1p1000 : 0x1p120), FullLike(b, most, 0x1p-30), grown);
}

// Smith's: the divisor by its larger part.
Planes Quotient(Builder& b, const Planes& x, const Planes& y) {
  const Value swap = Compare(b, Direction::kLt, Abs(b, y.re), Abs(b, y.im));
  const Value large = Select(b, swap, y.im, y.re), small = Select(b, swap, y.re, y.im);
  const Value ratio = Div(b, small, large);
  const Value divisor = Add(b, large, Mul(b, small, ratio));
  const Value p = Select(b, swap, x.im, x.re), q = Select(b, swap, x.re, x.im);
  const Value crossed = Sub(b, q, Mul(b, p, ratio));
  return {Div(b, Add(b, p, Mul(b, q, ratio)), divisor), Div(b, Select(b, swap, Neg(b, crossed), crossed), divisor)};
}

// Beyond it sinh, cosh and half of e^x are the same.
constexpr double kFar = 20;

}  // namespace

Planes PlanesOf(Builder& b, const Value& x) { return {Unary(b, kOp_real, x), Unary(b, kOp_imag, x)}; }
Value ComplexFrom(Builder& b, const Planes& x) { return Call(b, kOp_complex, {x.re, x.im}); }
Value Conj(Builder& b, const Value& x) {
  if (!x || !IsComplex(x.dtype())) return x;
  const Planes planes = PlanesOf(b, x);
  return ComplexFrom(b, {planes.re, Neg(b, planes.im)});
}

Planes ComplexAdd(Builder& b, const Planes& x, const Planes& y) { return {Add(b, x.re, y.re), Add(b, x.im, y.im)}; }
Planes ComplexSub(Builder& b, const Planes& x, const Planes& y) { return {Sub(b, x.re, y.re), Sub(b, x.im, y.im)}; }
Planes ComplexNeg(Builder& b, const Planes& x) { return {Neg(b, x.re), Neg(b, x.im)}; }

Planes ComplexMul(Builder& b, const Planes& x, const Planes& y) {
  return {Sub(b, Mul(b, x.re, y.re), Mul(b, x.im, y.im)), Add(b, Mul(b, x.re, y.im), Mul(b, x.im, y.re))};
}

Planes ComplexDiv(Builder& b, const Planes& x, const Planes& y) {
  const Value by_x = Moderating(b, x), by_y = Moderating(b, y);
  const Planes quotient = Quotient(b, Scaled(b, x, by_x), Scaled(b, y, by_y));
  const Planes usual = Scaled(b, Scaled(b, quotient, by_y), Div(b, 1, by_x));
  // Where that is NaN twice, Annex G sees infinities and zeros.
  const Value zero = FullLike(b, x.re, 0), one = FullLike(b, x.re, 1), infinite = FullLike(b, x.re, kInf);
  const auto unit = [&](const Value& v) { return WithSign(b, Select(b, IsInf(b, v), one, zero), v); };
  const auto product = [&](const Planes& n, const Planes& d) {
    return Planes{Add(b, Mul(b, n.re, d.re), Mul(b, n.im, d.im)), Sub(b, Mul(b, n.im, d.re), Mul(b, n.re, d.im))};
  };
  const Planes by_zero = Scaled(b, x, WithSign(b, infinite, y.re));
  const Planes from_infinite = Scaled(b, product({unit(x.re), unit(x.im)}, y), infinite);
  const Planes by_infinite = Scaled(b, product(x, {unit(y.re), unit(y.im)}), zero);
  const Value finite_x = And(b, IsFinite(b, x.re), IsFinite(b, x.im));
  const Value finite_y = And(b, IsFinite(b, y.re), IsFinite(b, y.im));
  const Value infinite_x = Or(b, IsInf(b, x.re), IsInf(b, x.im)), infinite_y = Or(b, IsInf(b, y.re), IsInf(b, y.im));
  Planes special = Choose(b, And(b, infinite_y, finite_x), by_infinite, usual);
  special = Choose(b, And(b, infinite_x, finite_y), from_infinite, special);
  const Value null = And(b, IsZero(b, y.re), IsZero(b, y.im));
  const Value number = Or(b, Not(b, IsNan(b, x.re)), Not(b, IsNan(b, x.im)));
  special = Choose(b, And(b, null, number), by_zero, special);
  return Choose(b, And(b, IsNan(b, usual.re), IsNan(b, usual.im)), special, usual);
}

Value ComplexAbs(Builder& b, const Planes& x) {
  const Value p = Abs(b, x.re), q = Abs(b, x.im);
  const Value most = Maximum(b, p, q), least = Minimum(b, p, q);
  const Value ratio = Div(b, least, most);
  const Value usual = Mul(b, most, Sqrt(b, Add(b, Mul(b, ratio, ratio), 1)));
  const Value finite = Select(b, IsZero(b, most), most, usual);
  return Select(b, Or(b, IsInf(b, p), IsInf(b, q)), FullLike(b, p, kInf), finite);
}

Planes ComplexSign(Builder& b, const Planes& x) {
  const Planes scaled = Scaled(b, x, Moderating(b, x));
  const Value size = ComplexAbs(b, scaled);
  return Choose(b, IsZero(b, size), x, {Div(b, scaled.re, size), Div(b, scaled.im, size)});
}

Planes ComplexExp(Builder& b, const Planes& x) {
  const Value im = Select(b, IsZero(b, x.im), x.im, ExpTimes(b, x.re, Sine(b, x.im)));
  return {ExpTimesCosine(b, x.re, Cosine(b, x.im)), im};
}

// (e^x - 1) cos y - 2 sin²(y / 2)
Planes ComplexExpm1(Builder& b, const Planes& x) {
  const Value half = Sine(b, Mul(b, x.im, 0.5));
  const Value re = Sub(b, Mul(b, Unary(b, kOp_expm1, x.re), Cosine(b, x.im)), Mul(b, Mul(b, half, half), 2));
  return {re, Select(b, IsZero(b, x.im), x.im, ExpTimes(b, x.re, Sine(b, x.im)))};
}

Planes ComplexLog(Builder& b, const Planes& x) { return {LogAbs(b, x), Atan2(b, x.im, x.re)}; }

Planes ComplexLog1p(Builder& b, const Planes& x) {
  const Planes more = AddReal(b, x, 1);
  const Value away = Add(b, Mul(b, x.re, Add(b, x.re, 2)), Mul(b, x.im, x.im));
  const Value most = Maximum(b, Abs(b, x.re), Abs(b, x.im));
  const Value near = Mul(b, Log1p(b, away), 0.5);
  return {Select(b, Is(b, Direction::kLt, most, 0.5), near, LogAbs(b, more)), Atan2(b, x.im, more.re)};
}

Planes ComplexSqrt(Builder& b, const Planes& x) {
  // Scales x by a power of 4, so that |x| neither overflows nor loses digits.
  const bool wide = Wide(x.re);
  const double huge = wide ? 0x1p1020 : 0x1p124, tiny = wide ? 0x1p-960 : 0x1p-80;
  const double grow = wide ? 0x1p120 : 0x1p60, shrink = wide ? 0x1p-60 : 0x1p-30;
  const Value most = Maximum(b, Abs(b, x.re), Abs(b, x.im));
  const Value is_huge = Is(b, Direction::kGt, most, huge), is_tiny = Is(b, Direction::kLt, most, tiny);
  const auto pick = [&](double for_huge, double for_tiny) {
    return Select(b, is_huge, FullLike(b, most, for_huge),
                  Select(b, is_tiny, FullLike(b, most, for_tiny), FullLike(b, most, 1)));
  };
  const Planes scaled = Scaled(b, x, pick(0x1p-4, grow));
  const Value root = Sqrt(b, Mul(b, Add(b, Abs(b, scaled.re), ComplexAbs(b, scaled)), 0.5));
  const Value other = Select(b, IsZero(b, root), root, Div(b, Abs(b, scaled.im), Mul(b, root, 2)));
  const Value right = Is(b, Direction::kGe, x.re, 0), back = pick(4, shrink);
  const Value re = Mul(b, Select(b, right, root, other), back), im = Mul(b, Select(b, right, other, root), back);
  const Value infinite = IsInf(b, x.im), inf = FullLike(b, re, kInf);
  return {Select(b, infinite, inf, re), WithSign(b, Select(b, infinite, inf, im), x.im)};
}

Planes ComplexRsqrt(Builder& b, const Planes& x) {
  return ComplexDiv(b, {FullLike(b, x.re, 1), FullLike(b, x.re, 0)}, ComplexSqrt(b, x));
}

Planes ComplexCbrt(Builder& b, const Planes& x) {
  const Planes log = ComplexLog(b, x);
  return ComplexExp(b, {Mul(b, log.re, 1.0 / 3), Mul(b, log.im, 1.0 / 3)});
}

Planes ComplexAtan2(Builder& b, const Planes& y, const Planes& x) {
  const Planes size = ComplexSqrt(b, ComplexAdd(b, ComplexMul(b, x, x), ComplexMul(b, y, y)));
  const Planes log = ComplexLog(b, ComplexDiv(b, {Sub(b, x.re, y.im), Add(b, x.im, y.re)}, size));
  return {log.im, Neg(b, log.re)};
}

namespace {
Planes Chosen(Builder& b, const Planes& x, const Planes& y, Direction wins) {
  const auto nan = [&](const Planes& v) { return Call(b, kOp_bitwise_or, {IsNan(b, v.re), IsNan(b, v.im)}); };
  const Value tie = And(b, Compare(b, Direction::kEq, x.re, y.re), Compare(b, wins, x.im, y.im));
  const Value first = Call(b, kOp_bitwise_or, {Call(b, kOp_bitwise_or, {Compare(b, wins, x.re, y.re), tie}), nan(x)});
  const Value taken = Select(b, nan(y), nan(x), first);
  return {Select(b, taken, x.re, y.re), Select(b, taken, x.im, y.im)};
}
}  // namespace
Planes ComplexMax(Builder& b, const Planes& x, const Planes& y) { return Chosen(b, x, y, Direction::kGt); }
Planes ComplexMin(Builder& b, const Planes& x, const Planes& y) { return Chosen(b, x, y, Direction::kLt); }

Planes ComplexSinh(Builder& b, const Planes& x) {
  const Value cosine = Cosine(b, x.im), sine = Sine(b, x.im), size = Abs(b, x.re);
  const Value far = Is(b, Direction::kGt, size, kFar);
  const Value far_re = Mul(b, Unary(b, kOp_sign, x.re), ExpTimesCosine(b, size, Mul(b, cosine, 0.5)));
  const Value re = Select(b, far, far_re, Mul(b, Sinh(b, x.re), cosine));
  const Value im = Select(b, far, ExpTimes(b, size, Mul(b, sine, 0.5)), Mul(b, Cosh(b, x.re), sine));
  return {Select(b, IsZero(b, x.re), x.re, re), Select(b, IsZero(b, x.im), x.im, im)};
}

Planes ComplexCosh(Builder& b, const Planes& x) {
  const Value cosine = Cosine(b, x.im), sine = Sine(b, x.im), size = Abs(b, x.re);
  const Value far = Is(b, Direction::kGt, size, kFar);
  const Value far_im = Mul(b, Unary(b, kOp_sign, x.re), ExpTimes(b, size, Mul(b, sine, 0.5)));
  const Value re = Select(b, far, ExpTimesCosine(b, size, Mul(b, cosine, 0.5)), Mul(b, Cosh(b, x.re), cosine));
  const Value im = Select(b, far, far_im, Mul(b, Sinh(b, x.re), sine));
  const Value real = Or(b, IsZero(b, x.re), IsZero(b, x.im));
  const Value none = Mul(b, x.re, x.im);  // a zero, but where one of them is not finite
  return {re, Select(b, real, Select(b, IsFinite(b, none), none, FullLike(b, none, 0)), im)};
}

Planes ComplexSin(Builder& b, const Planes& x) { return OverI(b, ComplexSinh(b, TimesI(b, x))); }
Planes ComplexCos(Builder& b, const Planes& x) { return ComplexCosh(b, TimesI(b, x)); }
Planes ComplexTan(Builder& b, const Planes& x) { return OverI(b, ComplexTanh(b, TimesI(b, x))); }

// Kahan's: with t = tan y and s = sinh x, (1 + t²) sqrt(1 + s²) s + i t over 1 + (1 + t²) s².
Planes ComplexTanh(Builder& b, const Planes& x) {
  const Value far = Is(b, Direction::kGt, Abs(b, x.re), kFar);
  const Value t = Unary(b, kOp_tan, x.im), beta = Add(b, Mul(b, t, t), 1);
  const Value s = Sinh(b, Select(b, far, FullLike(b, x.re, 0), x.re)), square = Mul(b, s, s);
  const Value divisor = Add(b, Mul(b, beta, square), 1);
  const Planes near = {Div(b, Mul(b, Mul(b, beta, Sqrt(b, Add(b, square, 1))), s), divisor), Div(b, t, divisor)};
  const Value turn = Mul(b, Mul(b, Sine(b, x.im), Cosine(b, x.im)), 4);
  const Value fading = Exp(b, Mul(b, Abs(b, x.re), -2));
  const Value faded = Select(b, And(b, IsZero(b, fading), IsNan(b, turn)), fading, Mul(b, turn, fading));
  const Planes all = Choose(b, far, {Unary(b, kOp_sign, x.re), faded}, near);
  return {Select(b, IsZero(b, x.re), x.re, all.re), all.im};
}

Planes ComplexSigmoid(Builder& b, const Planes& x) {
  const Planes one = {FullLike(b, x.re, 1), FullLike(b, x.re, 0)};
  return ComplexDiv(b, one, AddReal(b, ComplexExp(b, ComplexNeg(b, x)), 1));
}

// |x|^c e^(-d arg x) at the angle c arg x + d log |x|, for an exponent c + i d.
Planes ComplexPow(Builder& b, const Planes& x, const Planes& y) {
  const Value log = LogAbs(b, x), turn = Atan2(b, x.im, x.re);
  const Value size = Sub(b, Mul(b, y.re, log), Mul(b, y.im, turn));
  const Value angle = Add(b, Mul(b, y.re, turn), Mul(b, y.im, log));
  const Planes usual = ComplexExp(b, {size, angle});
  const Planes one = {FullLike(b, x.re, 1), FullLike(b, x.re, 0)}, zero = {one.im, one.im};
  const Value null_x = And(b, IsZero(b, x.re), IsZero(b, x.im)), null_y = And(b, IsZero(b, y.re), IsZero(b, y.im));
  const Value vanishes = And(b, null_x, Is(b, Direction::kGt, y.re, 0));
  return Choose(b, null_y, one, Choose(b, vanishes, zero, usual));
}

namespace {

// The imaginary part of conj(x) y.
Value Cross(Builder& b, const Planes& x, const Planes& y) { return Sub(b, Mul(b, x.re, y.im), Mul(b, x.im, y.re)); }

}  // namespace

Planes ComplexAsin(Builder& b, const Planes& x) {
  const Planes more = ComplexSqrt(b, AddReal(b, x, 1)), less = ComplexSqrt(b, AddReal(b, ComplexNeg(b, x), 1));
  return {Atan2(b, x.re, ComplexMul(b, less, more).re), Asinh(b, Cross(b, less, more))};
}

Planes ComplexAcos(Builder& b, const Planes& x) {
  const Planes more = ComplexSqrt(b, AddReal(b, x, 1)), less = ComplexSqrt(b, AddReal(b, ComplexNeg(b, x), 1));
  return {Mul(b, Atan2(b, less.re, more.re), 2), Asinh(b, Cross(b, more, less))};
}

Planes ComplexAcosh(Builder& b, const Planes& x) {
  const Planes more = ComplexSqrt(b, AddReal(b, x, 1)), less = ComplexSqrt(b, AddReal(b, x, -1));
  const Value re = Add(b, Mul(b, less.re, more.re), Mul(b, less.im, more.im));
  return {Asinh(b, re), Mul(b, Atan2(b, less.im, more.re), 2)};
}

Planes ComplexAsinh(Builder& b, const Planes& x) { return OverI(b, ComplexAsin(b, TimesI(b, x))); }

Planes ComplexAtanh(Builder& b, const Planes& x) {
  // Odd: log1p of something positive loses nothing.
  const Value away = Abs(b, x.re), less = Sub(b, 1, away), more = Add(b, away, 1);
  const Value square = Mul(b, x.im, x.im);
  const Value positive = Mul(b, Log1p(b, Div(b, Mul(b, away, 4), Add(b, Mul(b, less, less), square))), 0.25);
  const Value re = WithSign(b, positive, x.re);
  const Value im = Mul(b, Atan2(b, Mul(b, x.im, 2), Sub(b, Mul(b, less, more), square)), 0.5);
  // Far out 1 / x and a quarter turn.
  const Value size = ComplexAbs(b, x);
  const Value far_re = Div(b, Div(b, x.re, size), size);
  const Value far_im = WithSign(b, FullLike(b, x.im, std::numbers::pi / 2), x.im);
  return Choose(b, Is(b, Direction::kGt, size, Wide(x.re) ? 1e17 : 1e9), {far_re, far_im}, {re, im});
}

Planes ComplexAtan(Builder& b, const Planes& x) { return OverI(b, ComplexAtanh(b, TimesI(b, x))); }

}  // namespace weft::ops
