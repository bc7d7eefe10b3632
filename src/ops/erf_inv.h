// The inverse error function in double, for references.
#pragma once

#include <cmath>
#include <limits>

namespace weft::ops {

// Two Newton-Halley steps on std::erf from a logarithmic guess (Winitzki 2008, error under 2e-3): full double
// accuracy.
inline double ErfInv(double x) {
  if (!(x > -1 && x < 1)) return x == 1 || x == -1 ? x * std::numeric_limits<double>::infinity() : NAN;
  const double log = std::log1p(-x * x);
  const double t = 2 / (M_PI * 0.147) + log / 2;
  double y = std::copysign(std::sqrt(std::sqrt(t * t - log / 0.147) - t), x);
  for (int step = 0; step < 3; ++step) {
    // erfc keeps the digits that erf loses near 1.
    const double error =
        std::fabs(x) < 0.5 ? std::erf(y) - x : std::copysign((1 - std::fabs(x)) - std::erfc(std::fabs(y)), x);
    const double ratio = error * std::sqrt(M_PI) / 2 * std::exp(y * y);
    y -= ratio / (1 + y * ratio);
  }
  return y;
}

}  // namespace weft::ops
