// The narrow element types (IsNarrow) as numbers: f8 of every kind, i4, u4, i2, u2. Each element takes a byte, integers with their
// sign extended. What the kinds of f8 do is ml_dtypes' and OpenXLA's (docs/element_types.md has the table).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/runtime/dtype.h"

namespace weft {

// Returns the type as which operations that only move elements see the bytes of a narrow type; any other type is its
// own.
constexpr DType StorageOf(DType dtype) {
  if (!IsNarrow(dtype)) return dtype;
  return IsSigned(dtype) ? DType::kI8 : DType::kU8;
}

// An f8 with a sign and a fraction: sign bit, exponent, `fraction` bits. All codes count up with the magnitude.
struct SmallFloat {
  DType dtype;
  int fraction;
  int bias;
  uint8_t most;    // code of the largest finite magnitude
  uint8_t beyond;  // code of what is larger: an infinity where there is one, else NaN
  uint8_t nan;     // code of the NaN that conversions give, with the sign of what was converted
  bool one_nan;    // "fnuz": the code of -0 is the only NaN, zero has no sign
};
// The format of any f8 but f8e8m0fnu, which is 2^(code - 127), and NaN at 255.
const SmallFloat& SmallFloatOf(DType dtype);

// Rounds to nearest even, once; f8e8m0fnu as ml_dtypes does, ties up, and NaN for what is not positive.
uint8_t FloatToF8(DType dtype, float value);
float F8ToFloat(DType dtype, uint8_t code);
// The f32 from which a second rounding to fewer bits sees no tie that there is not: towards zero, with the low bit set where that
// is not exact.
float ToOdd(double value);

// The least and the largest of the sub-byte integers, and what a number wraps to.
constexpr int LeastOf(DType dtype) { return IsSigned(dtype) ? -(1 << (BitsOf(dtype) - 1)) : 0; }
constexpr int LargestOf(DType dtype) { return LeastOf(dtype) + (1 << BitsOf(dtype)) - 1; }
constexpr int Wrapped(DType dtype, uint64_t value) {
  const int bits = static_cast<int>(value & ((1u << BitsOf(dtype)) - 1));
  return bits > LargestOf(dtype) ? bits - (1 << BitsOf(dtype)) : bits;
}

// Several elements a byte, the first in the lowest bits, and zeros behind the last one.
constexpr int64_t PackedBytes(DType dtype, int64_t count) {
  const int64_t each = 8 / BitsOf(dtype);
  return count / each + (count % each != 0 ? 1 : 0);  // without count * bits, which may overflow
}
void Pack(DType dtype, std::span<const std::byte> elements, std::span<std::byte> packed);
void Unpack(DType dtype, std::span<const std::byte> packed, std::span<std::byte> elements);
// Extends the sign of what a caller left in the low bits of bytes.
void Normalize(DType dtype, std::span<std::byte> elements);

}  // namespace weft
