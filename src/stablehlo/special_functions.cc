// See special_functions.h.
#include "src/stablehlo/special_functions.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace weft::stablehlo {
namespace {

using ir::Builder;
using ir::Value;
using ops::Abs;
using ops::Add;
using ops::And;
using ops::Compare;
using ops::Direction;
using ops::Div;
using ops::Exp;
using ops::FullLike;
using ops::Log;
using ops::Mul;
using ops::Neg;
using ops::Select;
using ops::Sub;
using ops::Unary;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kPi = std::numbers::pi;

Value Floor(Builder& b, const Value& x) { return Unary(b, ops::kOp_floor, x); }
Value Power(Builder& b, const Value& x, const Value& y) { return ops::Call(b, ops::kOp_pow, {x, y}); }
Value Or(Builder& b, const Value& x, const Value& y) { return ops::Call(b, ops::kOp_bitwise_or, {x, y}); }
Value Is(Builder& b, Direction direction, const Value& x, double y) { return Compare(b, direction, x, y); }
Value IsInteger(Builder& b, const Value& x) { return Compare(b, Direction::kEq, x, Floor(b, x)); }

// 1 of an odd number, 0 of an even one, NaN of an infinite one.
Value Odd(Builder& b, const Value& x) { return Sub(b, x, Mul(b, Floor(b, Mul(b, x, 0.5)), 2)); }

// Highest power first.
Value Polynomial(Builder& b, const Value& x, std::span<const double> coefficients) {
  Value sum = FullLike(b, x, coefficients[0]);
  for (double c : coefficients.subspan(1)) sum = Add(b, Mul(b, sum, x), c);
  return sum;
}

// Chebyshev's series in t within [-1, 1], by Clenshaw.
Value Series(Builder& b, const Value& t, std::span<const double> coefficients) {
  const Value twice = Mul(b, t, 2);
  Value next = FullLike(b, t, 0), last = next;
  for (size_t i = coefficients.size(); i-- > 1;) {
    Value here = Add(b, Sub(b, Mul(b, twice, next), last), coefficients[i]);
    last = std::exchange(next, std::move(here));
  }
  return Add(b, Sub(b, Mul(b, t, next), last), coefficients[0]);
}

// Cephes' rational approximations of exp(x²) erfc(x), S. L. Moshier, netlib: below and above 8.
constexpr double kErfcP[] = {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687,
                             4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
                             9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2};
constexpr double kErfcQ[] = {1,
                             1.32281951154744992508e1,
                             8.67072140885989742329e1,
                             3.54937778887819891062e2,
                             9.75708501743205489753e2,
                             1.82390916687909736289e3,
                             2.24633760818710981792e3,
                             1.65666309194161350182e3,
                             5.57535340817727675546e2};
constexpr double kErfcR[] = {5.64189583547755073984e-1, 1.27536670759978104416, 5.01905042251180477414,
                             6.16021097993053585195,    7.40974269950448939160, 2.97886665372100240670};
constexpr double kErfcS[] = {1,
                             2.26052863220117276590,
                             9.39603524938001434673,
                             1.20489539808096656605e1,
                             1.70814450747565897222e1,
                             9.60896809063285878198,
                             3.36907645100081516050};
// And those in f32, of x exp(x²) erfc(x) by 1 / x²: below and above 2.
constexpr double kErfcP32[] = {2.326819970068386e-2,  -1.387039388740657e-1, 3.687424674597105e-1,
                               -5.824733027278666e-1, 6.210004621745983e-1,  -4.944515323274145e-1,
                               3.404879937665872e-1,  -2.741127028184656e-1, 5.638259427386472e-1};
constexpr double kErfcR32[] = {-1.047766399936249e+1, 1.297719955372516e+1, -7.495518717768503,
                               2.921019019210786,     -1.015265279202700,   4.218463358204948e-1,
                               -2.820767439740514e-1, 5.641895067754075e-1};

// Of |x| >= 1, where 1 - erf(x) would cancel.
Value ErfcTail(Builder& b, const Value& a) {
  const Value square = Mul(b, a, a), bell = Exp(b, Neg(b, square));
  if (a.dtype() == DType::kF64) {
    const Value middle = Div(b, Polynomial(b, a, kErfcP), Polynomial(b, a, kErfcQ));
    const Value far = Div(b, Polynomial(b, a, kErfcR), Polynomial(b, a, kErfcS));
    const Value tail = Mul(b, bell, Select(b, Is(b, Direction::kLt, a, 8), middle, far));
    return Select(b, Is(b, Direction::kGt, a, 28), FullLike(b, a, 0), tail);
  }
  const Value inverse = Div(b, 1, square);
  const Value sum =
      Select(b, Is(b, Direction::kLt, a, 2), Polynomial(b, inverse, kErfcP32), Polynomial(b, inverse, kErfcR32));
  const Value tail = Mul(b, Div(b, bell, a), sum);
  return Select(b, Is(b, Direction::kGt, a, 11), FullLike(b, a, 0), tail);
}

// Lanczos' approximation of the gamma function, g = 7, nine terms.
constexpr double kLanczosG = 7;
constexpr double kLanczosBase = 0.99999999999980993227684700473478;
constexpr double kLanczos[] = {676.520368121885098567009190444019, -1259.13921672240287047156078755283,
                               771.3234287776530788486528258894,   -176.61502916214059906584551354,
                               12.507343278686904814458936853,     -0.13857109526572011689554707,
                               9.984369578019570859563e-6,         1.50563273514931155834e-7};

struct LanczosSums {
  Value sum, slope;  // base + Σ c / (z + i + 1), and the derivative of it
};
LanczosSums Lanczos(Builder& b, const Value& z) {
  LanczosSums sums = {FullLike(b, z, kLanczosBase), FullLike(b, z, 0)};
  for (size_t i = 0; i < std::size(kLanczos); ++i) {
    const Value below = Add(b, z, static_cast<double>(i + 1));
    const Value term = Div(b, kLanczos[i], below);
    sums.sum = Add(b, sums.sum, term);
    sums.slope = Sub(b, sums.slope, Div(b, term, below));
  }
  return sums;
}
// log(z + g + 1/2), by log1p so that small z keep their digits.
Value LanczosLog(Builder& b, const Value& z) {
  constexpr double kShift = kLanczosG + 0.5;
  return Add(b, Unary(b, ops::kOp_log1p, Mul(b, z, 1 / kShift)), std::log(kShift));
}

// Chebyshev coefficients of i1e(x) / x on [0, 8] in x / 4 - 1, and of sqrt(x) i1e(x) from 8 on in 16 / x - 1; made by
// interpolation of SciPy's function. f32 needs the first ones only.
constexpr double kI1eNear[] = {
    0.12629359322181682,   -0.17641651835783406,   0.10264365868984711,    -0.05294598120809499,
    0.024726449030626485,  -0.010564084894626164,  0.004156422944312843,   -0.0015135724506312052,
    0.0005122859561685221, -0.0001617608158258182, 4.781565107539355e-05,  -1.3273163655902613e-05,
    3.470251307942385e-06, -8.568720262482832e-07, 2.003294750792568e-07,  -4.4450590983417905e-08,
    9.381537013984283e-09, -1.88724931677749e-09,  3.6255850343116387e-10, -6.663435133436286e-11,
    1.173555431135443e-11, -1.983389073745812e-12, 3.2177150920602636e-13, -4.986383926408353e-14,
    7.017300465207905e-15};
constexpr double kI1eFar[] = {
    0.38928811750914005,    -0.009761097491361472,   -0.00011058893876260455, -3.882564808876442e-06,
    -2.512236237717535e-07, -2.631468845928914e-08,  -3.835380351799557e-09,  -5.589743424381378e-10,
    -1.897493768699948e-11, 3.252605221725316e-11,   1.4125903981226506e-11,  2.0356249051707914e-12,
    -7.197589561931329e-13, -4.0838401823914127e-13, -2.0838456096533492e-14, 4.271572021108948e-14,
    1.067347204476672e-14,  -3.824028891364988e-15,  -1.58994500015414e-15};
constexpr size_t kI1eNear32 = 17, kI1eFar32 = 8;

// B_2k / (2k)! for k = 12, 11, … 1, as reciprocals.
constexpr double kBernoulli[] = {-7.1661652561756670113e18,
                                 1.8152105401943546773e17,
                                 -4.5979787224074726105e15,
                                 1.1646782814350067249e14,
                                 -2.950130727918164224e12,
                                 7.47242496e10,
                                 -1.8924375803183791606e9,
                                 47900160.0,
                                 -1209600.0,
                                 30240.0,
                                 -720.0,
                                 12.0};

}  // namespace

Value Erfc(Builder& b, const Value& x) {
  const Value a = Abs(b, x), tail = ErfcTail(b, a);
  const Value far = Select(b, Is(b, Direction::kLt, x, 0), Sub(b, 2, tail), tail);
  return Select(b, Is(b, Direction::kGt, a, 1), far, Sub(b, 1, Unary(b, ops::kOp_erf, x)));
}

// Of x < 1/2 by the reflection log(pi / |sin(pi x)|) - lgamma(1 - x).
Value Lgamma(Builder& b, const Value& x) {
  const Value reflect = Is(b, Direction::kLt, x, 0.5);
  const Value z = Select(b, reflect, Neg(b, x), Add(b, x, -1));
  const Value log = LanczosLog(b, z), t = Add(b, z, kLanczosG + 0.5);
  const Value main = Mul(b, Sub(b, Add(b, z, 0.5), Div(b, t, log)), log);
  const Value right = Add(b, Add(b, main, std::log(2 * kPi) / 2), Log(b, Lanczos(b, z).sum));
  const Value a = Abs(b, x), fraction = Sub(b, a, Floor(b, a));
  const Value reduced = Select(b, Is(b, Direction::kGt, fraction, 0.5), Sub(b, 1, fraction), fraction);
  const Value sine = Log(b, Unary(b, ops::kOp_sin, Mul(b, reduced, kPi)));
  const Value left =
      Select(b, Unary(b, ops::kOp_is_finite, sine), Sub(b, Sub(b, std::log(kPi), sine), right), Neg(b, sine));
  const Value finite = Select(b, reflect, left, right);
  return Select(b, Is(b, Direction::kEq, a, kInf), FullLike(b, x, kInf), finite);
}

// Of x < 1/2 by the reflection digamma(1 - x) - pi / tan(pi x).
Value Digamma(Builder& b, const Value& x) {
  const Value reflect = Is(b, Direction::kLt, x, 0.5);
  const Value z = Select(b, reflect, Neg(b, x), Add(b, x, -1));
  const LanczosSums sums = Lanczos(b, z);
  const Value t = Add(b, z, kLanczosG + 0.5);
  const Value right = Sub(b, Add(b, LanczosLog(b, z), Div(b, sums.slope, sums.sum)), Div(b, kLanczosG, t));
  const Value angle = Mul(b, Add(b, x, Abs(b, Floor(b, Add(b, x, 0.5)))), kPi);
  const Value cotangent = Div(b, Mul(b, Unary(b, ops::kOp_cos, angle), kPi), Unary(b, ops::kOp_sin, angle));
  const Value any = Select(b, reflect, Sub(b, right, cotangent), right);
  const Value pole = And(b, Is(b, Direction::kLe, x, 0), IsInteger(b, x));
  return Select(b, pole, FullLike(b, x, kNan), any);
}

Value BesselI1e(Builder& b, const Value& x) {
  const bool wide = x.dtype() == DType::kF64;
  const std::span<const double> near(kI1eNear, wide ? std::size(kI1eNear) : kI1eNear32);
  const std::span<const double> far(kI1eFar, wide ? std::size(kI1eFar) : kI1eFar32);
  const Value a = Abs(b, x);
  const Value small = Mul(b, Series(b, Add(b, Mul(b, a, 0.25), -1), near), a);
  const Value large = Div(b, Series(b, Add(b, Div(b, 16, a), -1), far), ops::Sqrt(b, a));
  const Value positive = Select(b, Is(b, Direction::kLe, a, 8), small, large);
  return Mul(b, Unary(b, ops::kOp_sign, x), positive);
}

// Ten terms, then Euler's and Maclaurin's formula for the rest.
Value Zeta(Builder& b, const Value& x, const Value& q) {
  const Value negative = Neg(b, x);
  Value sum = Power(b, q, negative), a = q, power;
  for (int i = 0; i < 9; ++i) {
    a = Add(b, a, 1);
    sum = Add(b, sum, Power(b, a, negative));
  }
  a = Add(b, a, 1);
  power = Power(b, a, negative);
  const Value inverse = Div(b, 1, Mul(b, a, a));
  Value rest = FullLike(b, x, 1 / kBernoulli[0]);
  for (size_t i = 1; i < std::size(kBernoulli); ++i) {
    const auto k = static_cast<double>(std::size(kBernoulli) - i);
    const Value factor = Mul(b, Add(b, x, 2 * k - 1), Add(b, x, 2 * k));
    rest = Add(b, Mul(b, Mul(b, factor, inverse), rest), 1 / kBernoulli[i]);
  }
  const Value tail = Add(b, Add(b, Div(b, a, Add(b, x, -1)), Mul(b, Div(b, x, a), rest)), 0.5);
  // What remains is nothing where its first power is, though the tail be infinite.
  Value result = Select(b, Is(b, Direction::kEq, power, 0), sum, Add(b, sum, Mul(b, power, tail)));
  const Value pole = And(b, Is(b, Direction::kLe, q, 0), IsInteger(b, q));
  const Value complex = And(b, Is(b, Direction::kLe, q, 0), Compare(b, Direction::kNe, x, Floor(b, x)));
  // At a pole both sides agree only where x is even.
  const Value even = Is(b, Direction::kEq, Odd(b, x), 0);
  result = Select(b, Or(b, Is(b, Direction::kLt, x, 1), complex), FullLike(b, x, kNan), result);
  result = Select(b, pole, Select(b, even, FullLike(b, x, kInf), FullLike(b, x, kNan)), result);
  return Select(b, Is(b, Direction::kEq, x, 1), FullLike(b, x, kInf), result);
}

// (-1)^(n + 1) n! zeta(n + 1, x); of n = 0 digamma.
Value Polygamma(Builder& b, const Value& n, const Value& x) {
  const Value next = Add(b, n, 1);
  const Value sign = Add(b, Mul(b, Odd(b, n), 2), -1);
  const Value high = Mul(b, Mul(b, sign, Exp(b, Lgamma(b, next))), Zeta(b, next, x));
  const Value result = Select(b, Is(b, Direction::kEq, n, 0), Digamma(b, x), high);
  const Value wrong = Or(b, Is(b, Direction::kLt, n, 0), Compare(b, Direction::kNe, n, Floor(b, n)));
  return Select(b, wrong, FullLike(b, x, kNan), result);
}

}  // namespace weft::stablehlo
