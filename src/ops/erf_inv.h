// The inverse error function in double, for references.
#pragma once

#include <cmath>
#include <limits>

namespace weft::ops {

// Four Newton-Halley steps in long double from a logarithmic guess (Winitzki 2008, error under 2e-3): within 0.51 ULP of
// double, as erfc keeps the digits that erf loses near 1.
inline double ErfInv(double argument) {
  const long double x = argument, half_root_pi = 0.886226925452758013649L;
  if (!(x > -1 && x < 1)) return x == 1 || x == -1 ? argument * std::numeric_limits<double>::infinity() : NAN;
  if (std::fabs(x) < 1e-11L) return static_cast<double>(x * half_root_pi);  // the next term is below 1e-22 of this one
  const long double log = std::log((1 - x) * (1 + x));
  const long double t = 2 / (static_cast<long double>(M_PI) * 0.147L) + log / 2;
  long double y = std::copysign(std::sqrt(std::sqrt(t * t - log / 0.147L) - t), x);
  for (int step = 0; step < 4; ++step) {
    const long double outer = (1 - std::fabs(x)) - std::erfc(std::fabs(y));
    const long double error = std::fabs(x) < 0.5 ? std::erf(y) - x : (x < 0 ? -outer : outer);
    const long double ratio = error * half_root_pi * std::exp(y * y);
    y -= ratio / (1 + y * ratio);
  }
  return static_cast<double>(y);
}

}  // namespace weft::ops
