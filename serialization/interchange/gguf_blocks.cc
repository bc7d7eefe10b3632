// See gguf_blocks.h. In each block a few scales multiply small integers; products and sums are single f32 operations, in the
// order that the results' bits ask for.
#include "serialization/interchange/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <iterator>

#include "src/runtime/host_tensor.h"

namespace weft {
namespace {

constexpr int kBlock = 32, kSuper = 256;

uint16_t U16(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }
float Half(const uint8_t* at) { return static_cast<float>(F16ToDouble(U16(at))); }
int Low(uint8_t byte) { return byte & 15; }
int High(uint8_t byte) { return byte >> 4; }
int Bit(const uint8_t* bits, int i) { return bits[i / 8] >> (i % 8) & 1; }

// The first half of a block in the low nibbles of its bytes, the second in the high ones.
int Nibble(const uint8_t* bytes, int i) { return i < kBlock / 2 ? Low(bytes[i]) : High(bytes[i - kBlock / 2]); }

// Calls `set(i, q)` for the 32 integers of a block: two plain loops, which compilers make vectors of.
template <typename Set>
void ForNibbles(const uint8_t* bytes, Set&& set) {
  for (int i = 0; i < kBlock / 2; ++i) set(i, Low(bytes[i]));
  for (int i = 0; i < kBlock / 2; ++i) set(i + kBlock / 2, High(bytes[i]));
}

void Q4_0(const uint8_t* b, float* out) {
  const float d = Half(b);
  ForNibbles(b + 2, [=](int i, int q) { out[i] = d * static_cast<float>(q - 8); });
}
void Q4_1(const uint8_t* b, float* out) {
  const float d = Half(b), m = Half(b + 2);
  ForNibbles(b + 4, [=](int i, int q) { out[i] = d * static_cast<float>(q) + m; });
}
void Q5_0(const uint8_t* b, float* out) {
  const float d = Half(b);
  ForNibbles(b + 6, [=](int i, int q) { out[i] = d * static_cast<float>((q | Bit(b + 2, i) << 4) - 16); });
}
void Q5_1(const uint8_t* b, float* out) {
  const float d = Half(b), m = Half(b + 2);
  ForNibbles(b + 8, [=](int i, int q) { out[i] = d * static_cast<float>(q | Bit(b + 4, i) << 4) + m; });
}
void Q8_0(const uint8_t* b, float* out) {
  const float d = Half(b);
  for (int i = 0; i < kBlock; ++i) out[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * d;
}

// Two bits each: 32 bytes hold four rows of 32 elements, a shift apart.
int Pair(const uint8_t* bytes, int i) { return bytes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3; }

void Q2_K(const uint8_t* b, float* out) {
  const uint8_t *scales = b, *qs = b + 16;
  const float d = Half(b + 80), least = Half(b + 82);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(Low(scales[s])), low = least * static_cast<float>(High(scales[s]));
    for (int i = 16 * s; i < 16 * s + 16; ++i) out[i] = scale * static_cast<float>(Pair(qs, i)) - low;
  }
}

void Q3_K(const uint8_t* b, float* out) {
  const uint8_t *high = b, *qs = b + 32, *scales = b + 96;
  const float d = Half(b + 108);
  for (int s = 0; s < 16; ++s) {
    const int four = s < 8 ? Low(scales[s]) : High(scales[s - 8]);
    const int two = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
    const float scale = d * static_cast<float>((four | two << 4) - 32);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const bool kept = (high[i % 32] >> (i / 32) & 1) != 0;
      out[i] = scale * static_cast<float>(Pair(qs, i) - (kept ? 0 : 4));
    }
  }
}

// Eight scales and eight minima of 6 bits in 12 bytes.
struct Scales {
  std::array<float, 8> scale, least;
};
Scales ScalesOf(const uint8_t* b) {
  const float d = Half(b), dmin = Half(b + 2);
  const uint8_t* packed = b + 4;
  Scales out;
  for (size_t s = 0; s < 8; ++s) {
    const uint8_t x = packed[s % 4], y = packed[4 + s % 4], z = packed[8 + s % 4];
    const int scale = s < 4 ? x & 63 : Low(z) | (x >> 2 & 0x30);
    const int least = s < 4 ? y & 63 : High(z) | (y >> 2 & 0x30);
    out.scale[s] = d * static_cast<float>(scale);
    out.least[s] = dmin * static_cast<float>(least);
  }
  return out;
}
// 32 bytes hold 64 elements, the first 32 in the low nibbles: `set(sub-block, element, integer)`.
template <typename Set>
void ForRows(const uint8_t* bytes, Set&& set) {
  for (int s = 0; s < kSuper / kBlock; s += 2) {
    const uint8_t* row = bytes + s / 2 * kBlock;
    for (int i = 0; i < kBlock; ++i) set(s, i, Low(row[i]));
    for (int i = 0; i < kBlock; ++i) set(s + 1, i, High(row[i]));
  }
}

void Q4_K(const uint8_t* b, float* out) {
  const Scales scales = ScalesOf(b);
  ForRows(b + 16, [&](int s, int i, int q) {
    const auto at = static_cast<size_t>(s);
    out[kBlock * s + i] = scales.scale[at] * static_cast<float>(q) - scales.least[at];
  });
}
void Q5_K(const uint8_t* b, float* out) {
  const Scales scales = ScalesOf(b);
  const uint8_t* high = b + 16;
  ForRows(b + 48, [&](int s, int i, int q) {
    const auto at = static_cast<size_t>(s);
    const int whole = q | (high[i] >> s & 1) << 4;
    out[kBlock * s + i] = scales.scale[at] * static_cast<float>(whole) - scales.least[at];
  });
}
void Q6_K(const uint8_t* b, float* out) {
  const float d = Half(b + 208);
  for (int s = 0; s < kSuper / 16; ++s) {
    const int half = s / 8, row = s % 8 / 2, column = s % 2 * 16;  // of 128 elements, of 32 of them, and in the row
    const uint8_t* low = b + 64 * half + row % 2 * 32 + column;
    const uint8_t* high = b + 128 + 32 * half + column;
    const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + s]));
    const int down = row < 2 ? 0 : 4;
    for (int i = 0; i < 16; ++i) {
      const int q = (low[i] >> down & 15) | (high[i] >> (2 * row) & 3) << 4;
      out[16 * s + i] = scale * static_cast<float>(q - 32);
    }
  }
}

constexpr std::array<int, 16> kUneven = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
void Iq4Nl(const uint8_t* b, float* out) {
  const float d = Half(b);
  for (int i = 0; i < kBlock; ++i) out[i] = d * static_cast<float>(kUneven[static_cast<size_t>(Nibble(b + 2, i))]);
}
void Iq4Xs(const uint8_t* b, float* out) {
  const float d = Half(b);
  const int high = U16(b + 2);
  for (int s = 0; s < kSuper / kBlock; ++s) {
    const uint8_t byte = b[4 + s / 2];
    const int scale = (s % 2 == 0 ? Low(byte) : High(byte)) | (high >> (2 * s) & 3) << 4;
    const float d_s = d * static_cast<float>(scale - 32);
    const uint8_t* qs = b + 8 + 16 * s;
    for (int i = 0; i < kBlock; ++i) {
      out[kBlock * s + i] = d_s * static_cast<float>(kUneven[static_cast<size_t>(Nibble(qs, i))]);
    }
  }
}

// Twice the values of f4e2m1; the scale is half a power of two.
constexpr std::array<int, 16> kE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
void Mxfp4(const uint8_t* b, float* out) {
  const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (b[0] - 1u) << 23;
  const auto d = std::bit_cast<float>(bits);
  for (int i = 0; i < kBlock; ++i) out[i] = d * static_cast<float>(kE2M1[static_cast<size_t>(Nibble(b + 1, i))]);
}

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, DType::kF32},
    {1, "F16", 1, 2, DType::kF16},
    {2, "Q4_0", kBlock, 18, DType::kF32, Q4_0},
    {3, "Q4_1", kBlock, 20, DType::kF32, Q4_1},
    {6, "Q5_0", kBlock, 22, DType::kF32, Q5_0},
    {7, "Q5_1", kBlock, 24, DType::kF32, Q5_1},
    {8, "Q8_0", kBlock, 34, DType::kF32, Q8_0},
    {9, "Q8_1", kBlock, 40, DType::kInvalid},
    {10, "Q2_K", kSuper, 84, DType::kF32, Q2_K},
    {11, "Q3_K", kSuper, 110, DType::kF32, Q3_K},
    {12, "Q4_K", kSuper, 144, DType::kF32, Q4_K},
    {13, "Q5_K", kSuper, 176, DType::kF32, Q5_K},
    {14, "Q6_K", kSuper, 210, DType::kF32, Q6_K},
    {15, "Q8_K", kSuper, 292, DType::kInvalid},
    {16, "IQ2_XXS", kSuper, 66, DType::kInvalid},
    {17, "IQ2_XS", kSuper, 74, DType::kInvalid},
    {18, "IQ3_XXS", kSuper, 98, DType::kInvalid},
    {19, "IQ1_S", kSuper, 50, DType::kInvalid},
    {20, "IQ4_NL", kBlock, 18, DType::kF32, Iq4Nl},
    {21, "IQ3_S", kSuper, 110, DType::kInvalid},
    {22, "IQ2_S", kSuper, 82, DType::kInvalid},
    {23, "IQ4_XS", kSuper, 136, DType::kF32, Iq4Xs},
    {24, "I8", 1, 1, DType::kI8},
    {25, "I16", 1, 2, DType::kI16},
    {26, "I32", 1, 4, DType::kI32},
    {27, "I64", 1, 8, DType::kI64},
    {28, "F64", 1, 8, DType::kF64},
    {29, "IQ1_M", kSuper, 56, DType::kInvalid},
    {30, "BF16", 1, 2, DType::kBF16},
    {34, "TQ1_0", kSuper, 54, DType::kInvalid},
    {35, "TQ2_0", kSuper, 66, DType::kInvalid},
    {39, "MXFP4", kBlock, 17, DType::kF32, Mxfp4},
    {40, "NVFP4", 64, 36, DType::kInvalid},
    {41, "Q1_0", 128, 18, DType::kInvalid},
};

}  // namespace

const GgufType* FindGgufType(uint32_t number) {
  const auto found = std::ranges::find(kTypes, number, &GgufType::number);
  return found == std::end(kTypes) ? nullptr : found;
}

void Dequantize(const GgufType& type, std::span<const std::byte> blocks, std::span<float> out) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks.data());
  const size_t elements = static_cast<size_t>(type.elements), bytes = static_cast<size_t>(type.bytes);
  for (size_t i = 0; (i + 1) * elements <= out.size(); ++i)
    type.dequantize(block + i * bytes, out.data() + i * elements);
}

}  // namespace weft
