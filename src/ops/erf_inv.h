// The inverse error function in double, for references.
#pragma once

#include <cmath>
#include <limits>

namespace weft::ops {

// Three Newton-Halley steps from a logarithmic guess (Winitzki 2008, error under 2e-3): full double accuracy, as erfc
// keeps the digits that erf loses near 1.
inline double ErfInv(double x) {
  if (!(x > -1 && x < 1)) return x == 1 || x == -1 ? x * std::numeric_limits<double>::infinity() : NAN;
  if (std::fabs(x) < 1e-9) return x * (std::sqrt(M_PI) / 2);  // the next term is below 1e-18 of this one
  const double log = std::log((1 - x) * (1 + x));
  const double t = 2 / (M_PI * 0.147) + log / 2;
  double y = std::copysign(std::sqrt(std::sqrt(t * t - log / 0.147) - t), x);
  for (int step = 0; step < 3; ++step) {
    const double outer = (1 - std::fabs(x)) - std::erfc(std::fabs(y));
    const double error = std::fabs(x) < 0.5 ? std::erf(y) - x : (x < 0 ? -outer : outer);
    const double ratio = error * std::sqrt(M_PI) / 2 * std::exp(y * y);
    y -= ratio / (1 + y * ratio);
  }
  return y;
}

}  // namespace weft::ops
