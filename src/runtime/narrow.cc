// Conversions of the narrow types, by integer arithmetic on the bits of f32.
#include "src/runtime/narrow.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft {
namespace {

constexpr SmallFloat kSmallFloats[] = {
    {DType::kF8E3M4, 4, 3, 0x6F, 0x70, 0x78, false},        {DType::kF8E4M3, 3, 7, 0x77, 0x78, 0x7C, false},
    {DType::kF8E4M3B11FNUZ, 3, 11, 0x7F, 0x80, 0x80, true}, {DType::kF8E4M3FN, 3, 7, 0x7E, 0x7F, 0x7F, false},
    {DType::kF8E4M3FNUZ, 3, 8, 0x7F, 0x80, 0x80, true},     {DType::kF8E5M2, 2, 15, 0x7B, 0x7C, 0x7E, false},
    {DType::kF8E5M2FNUZ, 2, 16, 0x7F, 0x80, 0x80, true},
};

constexpr uint32_t kInfinity = 0x7F800000;

// Ties go up, and so does everything between the least power, 2^-127, and the next one.
uint8_t FloatToE8M0(uint32_t bits) {
  if (bits == 0 || bits >= kInfinity) return 0xFF;  // negative numbers have the highest bit
  return static_cast<uint8_t>((bits + 0x400000 - (bits == 0x400000 ? 1 : 0)) >> 23);
}

}  // namespace

const SmallFloat& SmallFloatOf(DType dtype) {
  const auto* found = std::find_if(std::begin(kSmallFloats), std::end(kSmallFloats) - 1,
                                   [&](const SmallFloat& each) { return each.dtype == dtype; });
  return *found;
}

uint8_t FloatToF8(DType dtype, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kF8E8M0FNU) return FloatToE8M0(bits);
  const SmallFloat& f = SmallFloatOf(dtype);
  const uint32_t sign = bits >> 31 << 7, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > kInfinity) return static_cast<uint8_t>(f.nan | sign);
  const int drop = 23 - f.fraction;
  uint32_t code;
  if (magnitude < static_cast<uint32_t>(128 - f.bias) << 23) {
    // Below the least normal number a step is 2^(1 - bias - fraction), and the step of what this number makes of a sum.
    const float step_holder = std::bit_cast<float>(static_cast<uint32_t>(128 - f.bias + drop) << 23);
    code =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + step_holder) - std::bit_cast<uint32_t>(step_holder);
  } else {
    const uint32_t rounded = magnitude + (1u << (drop - 1)) - 1 + (magnitude >> drop & 1);
    code = (rounded >> drop) - (static_cast<uint32_t>(127 - f.bias) << f.fraction);
  }
  if (code > f.most) return static_cast<uint8_t>(f.beyond | sign);
  return static_cast<uint8_t>(code | (f.one_nan && code == 0 ? 0 : sign));
}

float F8ToFloat(DType dtype, uint8_t code) {
  if (dtype == DType::kF8E8M0FNU) {
    const uint32_t bits = code == 0 ? 0x400000 : code == 0xFF ? 0x7FC00000 : uint32_t{code} << 23;
    return std::bit_cast<float>(bits);
  }
  const SmallFloat& f = SmallFloatOf(dtype);
  const uint32_t magnitude = code & 0x7F, sign = uint32_t{code} >> 7 << 31;
  if (f.one_nan ? code == 0x80 : magnitude > f.most) {
    const bool infinite = !f.one_nan && magnitude == f.beyond && f.beyond != f.nan;
    return std::bit_cast<float>(sign | (infinite ? kInfinity : 0x7FC00000));
  }
  float value;
  if (magnitude < 1u << f.fraction) {
    value = std::ldexp(static_cast<float>(magnitude), 1 - f.bias - f.fraction);
  } else {
    value = std::bit_cast<float>((magnitude << (23 - f.fraction)) + (static_cast<uint32_t>(127 - f.bias) << 23));
  }
  return sign != 0 ? -value : value;
}

float ToOdd(double value) {
  auto near = static_cast<float>(value);
  if (near == value || std::isnan(value)) return near;
  if (std::fabs(near) > std::fabs(value)) near = std::nextafterf(near, 0);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(near) | 1);
}

void Pack(DType dtype, std::span<const std::byte> elements, std::span<std::byte> packed) {
  const size_t bits = BitsOf(dtype), each = 8 / bits;
  const auto mask = static_cast<unsigned>((1 << bits) - 1);
  std::fill(packed.begin(), packed.end(), std::byte{0});
  for (size_t i = 0; i < elements.size(); ++i) {
    packed[i / each] |= static_cast<std::byte>((static_cast<unsigned>(elements[i]) & mask) << (i % each * bits));
  }
}

void Unpack(DType dtype, std::span<const std::byte> packed, std::span<std::byte> elements) {
  const size_t bits = BitsOf(dtype), each = 8 / bits;
  for (size_t i = 0; i < elements.size(); ++i) {
    const unsigned shifted = static_cast<unsigned>(packed[i / each]) >> (i % each * bits);
    elements[i] = static_cast<std::byte>(Wrapped(dtype, shifted));
  }
}

void Normalize(DType dtype, std::span<std::byte> elements) {
  for (std::byte& each : elements) each = static_cast<std::byte>(Wrapped(dtype, static_cast<unsigned>(each)));
}

}  // namespace weft
