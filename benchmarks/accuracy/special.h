// The judge of special functions, in long double and in __float128, by formulas other than the library's: power series, asymptotic
// series, integrals by the trapezoidal rule, continued fractions. tests/accuracy/special_test.py compares it with mpmath.
#pragma once

#include <array>
#include <iterator>

#include "accuracy/widths.h"

namespace accuracy {

// --- exponentials and the error function ------------------------------------------------------------------------------
// Computes e^(factor x²) of an x with 53 bits: the square of the first 24 of them is exact, the rest is small.
template <typename T>
T ExpOfSquare(T factor, T x) {
  const T head = static_cast<float>(x), rest = (x - head) * (x + head);
  return M_exp(factor * head * head) * M_exp(factor * rest);
}

// By its definition up to 8, from there on by the continued fraction, DLMF 7.9.1.
template <typename T>
T Erfcx(T x) {
  if (x < -30) return std::numeric_limits<double>::infinity();
  if (x < 0) return 2 * ExpOfSquare<T>(1, x) - Erfcx<T>(-x);
  if (x < 8) return ExpOfSquare<T>(1, x) * M_erfc(x);
  T below = x;
  for (int k = 40; k > 0; --k) below = x + static_cast<T>(k) / 2 / below;
  return 1 / (M_sqrt(kPi<T>) * below);
}

// The share of the normal distribution above a >= 0.
template <typename T>
T NormalTail(T a) {
  return a > 40 ? T(0) : Erfcx<T>(a * M_sqrt(static_cast<T>(0.5))) * ExpOfSquare<T>(static_cast<T>(-0.5), a) / 2;
}
template <typename T>
T Ndtr(T x) {
  return x < 0 ? NormalTail<T>(-x) : 1 - NormalTail<T>(x);
}
template <typename T>
T LogNdtr(T x) {
  if (x >= 0) return M_log1p(-NormalTail<T>(x));
  return M_log(Erfcx<T>(-x * M_sqrt(static_cast<T>(0.5))) / 2) - x * x / 2;
}

// The inverse of erf by Newton's steps from what is judged, y, until the next would change less than 1e-18. `a` is |x|, `rest` 1 - |x|.
template <typename T>
T InverseErf(T a, T rest, double y) {
  T b = Magnitude(static_cast<T>(y)), step;
  int steps = 0;
  do {
    const T error = a < static_cast<T>(0.5) ? M_erf(b) - a : rest - M_erfc(b);
    step = error * (M_sqrt(kPi<T>) / 2) * M_exp(b * b);
    b -= step;
  } while (Magnitude(step) > b * static_cast<T>(1e-9) && ++steps < 60);
  return b;
}
template <typename T>
T ErfInv(T x, double y) {
  const T a = Magnitude(x);
  if (!(a < 1)) return a == 1 ? x * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (a < static_cast<T>(1e-18) || !(std::fabs(y) < 30)) return x * (M_sqrt(kPi<T>) / 2);
  const T b = InverseErf<T>(a, 1 - a, y);
  return x < 0 ? -b : b;
}
template <typename T>
T Ndtri(T p, double y) {
  if (!(p >= 0 && p <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (p == 0 || p == 1) return p == 0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (p == static_cast<T>(0.5)) return 0;
  const T rest = p < static_cast<T>(0.5) ? 2 * p : 2 * (1 - p), a = 2 * Magnitude(p - static_cast<T>(0.5));
  const T root = M_sqrt(static_cast<T>(2));
  if (!(std::fabs(y) < 60)) return std::numeric_limits<double>::infinity();
  const T b = root * InverseErf<T>(a, rest, y / std::sqrt(2.0));
  return p < static_cast<T>(0.5) ? -b : b;
}

// --- Bessel functions -------------------------------------------------------------------------------------------------
// Computes the sum over k of a_k(n) / (sign x)^k, DLMF 10.17.1, whose terms fall below e^(-2 x).
template <typename T>
T HankelSum(int n, T x, int sign) {
  T term = 1, sum = 1;
  for (int k = 1; k < 200; ++k) {
    const T next = term * (4 * n * n - (2 * k - 1) * (2 * k - 1)) / (T(8 * k) * sign * x);
    if (Magnitude(next) > Magnitude(term) || Magnitude(next) < kEpsilon<T> * Magnitude(sum)) break;
    sum += term = next;
  }
  return sum;
}

constexpr int kBesselFar = 40;  // from here on the asymptotic series has all digits

// e^-|x| times I, or I: by the power series, all of whose terms are positive, DLMF 10.25.2; from 40 on by 10.40.1.
template <typename T>
T BesselI(int n, T given, bool scaled) {
  const T x = Magnitude(given);
  if (x != x) return x;
  T y;
  if (x < kBesselFar) {
    const T z = x * x / 4;
    T term = n == 0 ? T(1) : x / 2;
    y = term;
    for (int k = 1; term > y * kEpsilon<T>; ++k) y += term *= z / (T(k) * (k + n));
    if (scaled) y *= M_exp(-x);
  } else {
    y = HankelSum<T>(n, x, -1) / M_sqrt(2 * kPi<T> * x);
    if (!scaled) y = x > 5000 ? T(std::numeric_limits<double>::infinity()) : y * M_exp(x);
  }
  return n == 1 && given < 0 ? -y : n == 1 && given == 0 ? given : y;
}

// e^x K: below 1/2 by the power series with the digamma numbers, DLMF 10.31.2, order 1 from the Wronskian, 10.28.2; in between the
// integral of e^(-x (cosh t - 1)) cosh(n t), 10.32.9, by the trapezoidal rule, whose error falls as e^(-pi² / h); from 40 on 10.40.2.
template <typename T>
T BesselK(int n, T x, bool scaled) {
  if (!(x >= 0)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return std::numeric_limits<double>::infinity();
  T y;
  if (x < static_cast<T>(0.5)) {
    const T z = x * x / 4;
    T term = 1, harmonic = 0, sum = 0;
    for (int k = 1; k < 40; ++k) {
      term *= z / (T(k) * k);
      harmonic += 1 / T(k);
      sum += term * harmonic;
    }
    y = sum - (M_log(x / 2) + kEuler<T>) * BesselI<T>(0, x, false);
    if (n == 1) y = (1 / x - BesselI<T>(1, x, false) * y) / BesselI<T>(0, x, false);
    return scaled ? y * M_exp(x) : y;
  }
  if (x < kBesselFar) {
    constexpr int kNodes = 112;
    static const auto nodes = [] {
      std::array<std::array<T, 2>, kNodes> made;
      for (int k = 0; k < kNodes; ++k) {
        const T t = T(k) / 16, half = M_sinh(t / 2);
        made[k] = {2 * half * half, M_cosh(t)};
      }
      return made;
    }();
    y = T(1) / 2;
    for (int k = 1; k < kNodes && x * nodes[k][0] < 90; ++k) y += M_exp(-x * nodes[k][0]) * (n == 1 ? nodes[k][1] : T(1));
    y /= 16;
  } else {
    y = HankelSum<T>(n, x, 1) * M_sqrt(kPi<T> / (2 * x));
  }
  return scaled ? y : y * M_exp(-x);
}

// --- gamma and its kin ------------------------------------------------------------------------------------------------
// The digamma function: from 60 on by its asymptotic series, DLMF 5.11.2, by 5.5.2 up to there, below 0 by 5.5.4.
template <typename T>
T Digamma(T x) {
  if (!(x > 0)) {
    const T off = x - M_nearbyint(x);
    if (off == 0 || off != off) return std::numeric_limits<double>::quiet_NaN();
    const T angle = kPi<T> * off;
    return Digamma<T>(1 - x) - kPi<T> * M_cos(angle) / M_sin(angle);
  }
  if (x > static_cast<T>(1e300)) return M_log(x);
  T less = 0;
  for (; x < 60; x += 1) less += 1 / x;
  // The Bernoulli numbers over 2 k.
  static const T kTerms[] = {T(1) / 12,          T(-1) / 120,         T(1) / 252,        T(-1) / 240,      T(1) / 132,       T(-691) / 32760,
                             T(1) / 12,          T(-3617) / 8160,     T(43867) / 14364,  T(-174611) / 6600, T(77683) / 276, T(-236364091) / 65520};
  const T inverse = 1 / (x * x);
  T sum = 0;
  for (size_t k = std::size(kTerms); k-- > 0;) sum = (sum + kTerms[k]) * inverse;
  return M_log(x) - 1 / (2 * x) - sum - less;
}

// Nodes and weights for integrals from 0 to infinity of what falls as e^-t does: t = e^(v - e^-v), the trapezoidal rule in v.
template <typename T>
struct Exponentials {
  static constexpr int kCount = 260;
  std::array<T, kCount> t, weight;
  Exponentials() {
    for (int k = 0; k < kCount; ++k) {
      const T v = T(k - 125) / 25, e = M_exp(-v);
      t[k] = M_exp(v - e);
      weight[k] = t[k] * (1 + e) / 25;
    }
  }
};

// Hurwitz's zeta function of s > 1 and q > 0: terms up to 12 + 2 s, and Hermite's integral for the rest, DLMF 25.11.29.
template <typename T>
T Zeta(T s, T q) {
  static const Exponentials<T> at;
  static const auto falls = [] {
    std::array<T, Exponentials<T>::kCount> made;
    for (int k = 0; k < at.kCount; ++k) made[k] = at.weight[k] / M_expm1(2 * kPi<T> * at.t[k]);
    return made;
  }();
  T sum = 0;
  for (const T from = 12 + 2 * s; q < from; q += 1) sum += M_pow(q, -s);
  T integral = 0;
  for (int k = 0; k < at.kCount; ++k) {
    const T t = at.t[k];
    integral += M_sin(s * M_atan2(t, q)) * M_pow(1 + (t / q) * (t / q), -s / 2) * falls[k];
  }
  return sum + M_pow(q, -s) * (static_cast<T>(0.5) + q / (s - 1) + 2 * integral);
}
template <typename T>
T Polygamma(T n, T x) {
  if (n == 0) return Digamma<T>(x);
  const T y = M_tgamma(n + 1) * Zeta<T>(n + 1, x);
  return static_cast<int>(n) % 2 == 0 ? -y : y;
}

// The incomplete gamma functions: the lower one by its power series, DLMF 8.11.4, the upper one from a + 1 on by the integral of
// e^(-x u) (1 + u)^(a - 1), 8.6.5.
template <typename T>
T IncompleteGamma(T a, T x, bool upper) {
  const T density = M_exp(a * M_log(x) - x - M_lgamma(a));
  if (x < a + 1) {
    T term = 1 / a, sum = term;
    for (int n = 1; term > sum * kEpsilon<T>; ++n) sum += term *= x / (a + n);
    return upper ? 1 - density * sum : density * sum;
  }
  static const Exponentials<T> at;
  T sum = 0;
  for (int k = 0; k < at.kCount; ++k) sum += M_exp(-at.t[k]) * M_pow(1 + at.t[k] / x, a - 1) * at.weight[k];
  const T above = density / x * sum;
  return upper ? above : 1 - above;
}

}  // namespace accuracy
