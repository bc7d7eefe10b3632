// Functions of <math.h> under one name in three widths: double, long double, __float128. The judge's formulas are templates over these.
#pragma once

#include <math.h>

#include <cmath>
#include <limits>

// glibc's quad functions, which <math.h> hides from some compilers.
extern "C" {
#define WEFT_QUAD(name) __float128 name(__float128) noexcept;
WEFT_QUAD(expf128) WEFT_QUAD(exp2f128) WEFT_QUAD(expm1f128) WEFT_QUAD(logf128) WEFT_QUAD(log2f128) WEFT_QUAD(log10f128) WEFT_QUAD(log1pf128)
WEFT_QUAD(tanhf128) WEFT_QUAD(sinhf128) WEFT_QUAD(coshf128) WEFT_QUAD(atanhf128) WEFT_QUAD(asinhf128) WEFT_QUAD(acoshf128)
WEFT_QUAD(erff128) WEFT_QUAD(erfcf128) WEFT_QUAD(sinf128) WEFT_QUAD(cosf128) WEFT_QUAD(tanf128) WEFT_QUAD(asinf128) WEFT_QUAD(acosf128)
WEFT_QUAD(atanf128) WEFT_QUAD(cbrtf128) WEFT_QUAD(sqrtf128) WEFT_QUAD(tgammaf128) WEFT_QUAD(nearbyintf128) WEFT_QUAD(truncf128)
WEFT_QUAD(j0f128) WEFT_QUAD(j1f128) WEFT_QUAD(y0f128) WEFT_QUAD(y1f128)
#undef WEFT_QUAD
#define WEFT_QUAD(name) __float128 name(__float128, __float128) noexcept;
WEFT_QUAD(powf128) WEFT_QUAD(atan2f128) WEFT_QUAD(hypotf128) WEFT_QUAD(fmodf128)
#undef WEFT_QUAD
__float128 lgammaf128_r(__float128, int*) noexcept;
int strfromf128(char*, size_t, const char*, __float128) noexcept;
}

namespace accuracy {

using Quad = __float128;

#define WEFT_MATH(name)                                   \
  inline double M_##name(double x) { return ::name(x); }  \
  inline long double M_##name(long double x) { return ::name##l(x); } \
  inline Quad M_##name(Quad x) { return ::name##f128(x); }
WEFT_MATH(exp) WEFT_MATH(exp2) WEFT_MATH(expm1) WEFT_MATH(log) WEFT_MATH(log2) WEFT_MATH(log10) WEFT_MATH(log1p) WEFT_MATH(tanh)
WEFT_MATH(sinh) WEFT_MATH(cosh) WEFT_MATH(atanh) WEFT_MATH(asinh) WEFT_MATH(acosh) WEFT_MATH(erf) WEFT_MATH(erfc) WEFT_MATH(sin)
WEFT_MATH(cos) WEFT_MATH(tan) WEFT_MATH(asin) WEFT_MATH(acos) WEFT_MATH(atan) WEFT_MATH(cbrt) WEFT_MATH(sqrt) WEFT_MATH(tgamma)
WEFT_MATH(nearbyint) WEFT_MATH(trunc) WEFT_MATH(j0) WEFT_MATH(j1) WEFT_MATH(y0) WEFT_MATH(y1)
#undef WEFT_MATH
#define WEFT_MATH(name)                                                       \
  inline double M_##name(double x, double y) { return ::name(x, y); }         \
  inline long double M_##name(long double x, long double y) { return ::name##l(x, y); } \
  inline Quad M_##name(Quad x, Quad y) { return ::name##f128(x, y); }
WEFT_MATH(pow) WEFT_MATH(atan2) WEFT_MATH(hypot) WEFT_MATH(fmod)
#undef WEFT_MATH
inline double M_lgamma(double x) { int sign; return ::lgamma_r(x, &sign); }
inline long double M_lgamma(long double x) { int sign; return ::lgammal_r(x, &sign); }
inline Quad M_lgamma(Quad x) { int sign; return ::lgammaf128_r(x, &sign); }

template <typename T>
T Magnitude(T x) { return x < 0 ? -x : x; }

// To 106 bits, in two halves.
template <typename T>
constexpr T kRootHalf = static_cast<T>(0x1.6a09e667f3bcdp-1) + static_cast<T>(-0x1.bdd3413b26456p-55);
template <typename T>
constexpr T kRoot8OverPi = static_cast<T>(0x1.9884533d43651p+0) + static_cast<T>(-0x1.cbc0d30ebfd15p-54);  // 2 sqrt(2 / pi)
template <typename T>
constexpr T kEuler = static_cast<T>(0x1.2788cfc6fb619p-1) + static_cast<T>(-4.94291515243064510e-18L);
// The constants of selu come from Klambauer et al., Self-normalizing neural networks (2017).
template <typename T>
constexpr T kSeluScale = static_cast<T>(1.0507009873554804934193349852946L);
template <typename T>
constexpr T kSeluAlpha = static_cast<T>(1.6732632423543772848170429916717L);
template <typename T>
const T kPi = M_acos(static_cast<T>(-1));
// Half a unit in the last place of 1.
template <typename T>
constexpr T kEpsilon = sizeof(T) == sizeof(double) ? 0x1p-53 : static_cast<T>(std::numeric_limits<T>::digits == 64 ? 0x1p-64 : 0x1p-113);

}  // namespace accuracy
