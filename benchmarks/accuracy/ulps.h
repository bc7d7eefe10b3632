// Element types as the judge sees them: their bits, and distances in units of their last place.
#pragma once

#include <weft.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "accuracy/widths.h"

namespace accuracy {

struct Format {
  const char* name;
  weft_dtype dtype;
  int bytes, digits, min_exponent, max_exponent;  // 2^min is the smallest normal number, 2^max is past the largest
};
constexpr Format kFormats[] = {{"f32", WEFT_F32, 4, 24, -126, 128},
                               {"f64", WEFT_F64, 8, 53, -1022, 1024},
                               {"bf16", WEFT_BF16, 2, 8, -126, 128},
                               {"f16", WEFT_F16, 2, 11, -14, 16}};

// With sizes that the compiler knows: a call of memcpy costs more than most functions here.
inline uint64_t Load(const std::vector<uint8_t>& bytes, int64_t i, int size) {
  uint64_t bits = 0;
  if (size == 4) {
    std::memcpy(&bits, &bytes[i * 4], 4);
  } else if (size == 8) {
    std::memcpy(&bits, &bytes[i * 8], 8);
  } else {
    std::memcpy(&bits, &bytes[i * 2], 2);
  }
  return bits;
}
inline void Store(std::vector<uint8_t>* bytes, int64_t i, int size, uint64_t bits) {
  if (size == 4) {
    std::memcpy(&(*bytes)[i * 4], &bits, 4);
  } else if (size == 8) {
    std::memcpy(&(*bytes)[i * 8], &bits, 8);
  } else {
    std::memcpy(&(*bytes)[i * 2], &bits, 2);
  }
}

inline double Decode(const Format& format, uint64_t bits) {
  if (format.bytes == 8) return __builtin_bit_cast(double, bits);
  if (format.bytes == 4) return __builtin_bit_cast(float, static_cast<uint32_t>(bits));
  if (format.digits == 8) return __builtin_bit_cast(float, static_cast<uint32_t>(bits << 16));
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double x = exponent == 31 ? (fraction != 0 ? NAN : HUGE_VAL) : exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -x : x;
}
// The bits of a normal number, towards 0.
inline uint64_t Encode(const Format& format, double x) {
  if (format.bytes == 8) return __builtin_bit_cast(uint64_t, x);
  const uint32_t bits = __builtin_bit_cast(uint32_t, static_cast<float>(x));
  if (format.bytes == 4) return bits;
  if (format.digits == 8) return bits >> 16;
  const int exponent = static_cast<int>(bits >> 23 & 255) - 127;
  const uint32_t sign = bits >> 16 & 0x8000;
  return exponent < -14 ? sign : sign | static_cast<uint32_t>(exponent + 15) << 10 | (bits >> 13 & 1023);
}

// The number beside x on the way to y.
inline double NextOf(const Format& format, double x, double y) {
  if (x != x || y != y) return NAN;
  if (x == y) return y;
  const double least = std::ldexp(1.0, format.min_exponent - format.digits + 1);
  if (x == 0) return y > 0 ? least : -least;
  const double size = std::fabs(x), most = std::ldexp(2 - std::ldexp(1.0, 1 - format.digits), format.max_exponent - 1);
  const bool grows = (y > x) == (x > 0);
  double next;
  if (std::isinf(x)) {
    next = most;
  } else {
    const int exponent = std::max(std::ilogb(size), format.min_exponent);
    const double unit = std::ldexp(1.0, exponent - format.digits + 1);
    const bool edge = size == std::ldexp(1.0, exponent) && exponent > format.min_exponent;
    next = grows ? (size == most ? HUGE_VAL : size + unit) : size - (edge ? unit / 2 : unit);
  }
  return std::copysign(next, x);
}

constexpr double kWrong = 1e30;  // another NaN, infinity or sign

template <typename T>
bool IsNegative(T x) {
  return x < 0 || (x == 0 && std::signbit(static_cast<double>(x)));
}

// Distance in units of the last place of `size`, which is the exact result but for functions with zeros.
template <typename T>
double Ulps(const Format& format, double got, T exact, T size) {
  if constexpr (sizeof(T) == 8) {  // 13 * 10^9 times: normal numbers of f32 without library calls
    const int exponent = static_cast<int>(__builtin_bit_cast(uint64_t, size) >> 52 & 2047) - 1023;
    if (exponent >= -126 && exponent < 127 && std::fabs(got) < 3e38 && got != 0) {
      return std::fabs(got - exact) * __builtin_bit_cast(double, static_cast<uint64_t>(1023 + 23 - exponent) << 52);
    }
  }
  if (exact != exact || got != got) return exact != exact && got != got ? 0 : kWrong;
  const bool negative = IsNegative(exact);
  if (got == 0 && std::signbit(got) != negative && size == exact) return kWrong;
  const T end = static_cast<T>(std::ldexp(1.0, format.max_exponent - 1)) * 2;
  const T magnitude = std::min(Magnitude(exact), end);
  if (format.max_exponent == 1024 && sizeof(T) == 8) return kWrong;  // f64 is judged by wider types
  T given = std::isinf(got) ? (got < 0 ? -end : end) : static_cast<T>(got);
  const T difference = Magnitude(given - (negative ? -magnitude : magnitude));
  if (difference == 0) return 0;
  int exponent = format.min_exponent;
  const T unit_of = std::min(Magnitude(size), end);
  if (unit_of > 0) {
    const auto whole = static_cast<long double>(unit_of);
    exponent = std::max(exponent, std::min(std::ilogb(whole), format.max_exponent - 1));
  }
  return static_cast<double>(std::ldexp(static_cast<long double>(difference), format.digits - 1 - exponent));
}

}  // namespace accuracy
