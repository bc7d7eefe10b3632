// See gguf_blocks.h. In each block a few scales multiply small integers; products and sums are single f32 operations, in the
// order that the results' bits ask for.
#include "serialization/interchange/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

namespace weft {
namespace {

constexpr int kBlock = 32, kSuper = 256;

uint16_t U16(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }
int Low(uint8_t byte) { return byte & 15; }
int High(uint8_t byte) { return byte >> 4; }

// The value of an f16, which an f32 has exactly. Subnormal ones come from an integer, so that no mode of the processor makes
// them zero.
float Half(const uint8_t* at) {
  const uint32_t bits = U16(at), sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  uint32_t wide = magnitude << 13;
  wide += magnitude < 0x7C00 ? 112u << 23 : 224u << 23;
  if (magnitude > 0x7C00) wide |= 0x400000;  // NaN becomes a quiet one
  return std::bit_cast<float>(wide | sign);
}

// Kernels have two steps: the block's integers as bytes, then products. Both are loops of fixed lengths without branches over
// bytes that lie side by side, which every compiler makes vectors of, of any instruction set.
using Row = std::array<int8_t, kBlock>;

template <int count>
void Scale(const int8_t* q, float scale, float* out) {
  for (int i = 0; i < count; ++i) out[i] = scale * static_cast<float>(q[i]);
}
template <int count>
void ScaleAdd(const int8_t* q, float scale, float add, float* out) {
  for (int i = 0; i < count; ++i) out[i] = scale * static_cast<float>(q[i]) + add;
}
template <int count>
void ScaleLess(const int8_t* q, float scale, float least, float* out) {
  for (int i = 0; i < count; ++i) out[i] = scale * static_cast<float>(q[i]) - least;
}

// The first half of a block lies in the low nibbles of 16 bytes, the second in the high ones.
Row Nibbles(const uint8_t* bytes) {
  Row q;
  for (int i = 0; i < kBlock / 2; ++i) {
    q[static_cast<size_t>(i)] = static_cast<int8_t>(Low(bytes[i]));
    q[static_cast<size_t>(i + kBlock / 2)] = static_cast<int8_t>(High(bytes[i]));
  }
  return q;
}
// Bits [shift, shift + width) of 32 bytes.
template <int shift, int width>
Row Bits(const uint8_t* bytes) {
  Row q;
  for (int i = 0; i < kBlock; ++i) {
    q[static_cast<size_t>(i)] = static_cast<int8_t>(bytes[i] >> shift & ((1 << width) - 1));
  }
  return q;
}
// Bit `shift` of 32 bytes where it is to stand in the integer.
template <int shift, int to, int width = 1>
void AddBits(const uint8_t* bytes, Row* q) {
  for (int i = 0; i < kBlock; ++i) {
    int8_t& at = (*q)[static_cast<size_t>(i)];
    at = static_cast<int8_t>(at | (bytes[i] >> shift & ((1 << width) - 1)) << to);
  }
}
void Add(int8_t number, Row* q) {
  for (int8_t& at : *q) at = static_cast<int8_t>(at + number);
}
// The fifth bits of a block, one a bit of 4 bytes: eight at a time, a copy of the byte for each, of which one bit is kept.
void AddFifth(const uint8_t* bits, Row* q) {
  constexpr uint64_t kOnes = 0x0101010101010101, kDiagonal = 0x8040201008040201;
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t spread = ((((bits[i] * kOnes) & kDiagonal) + 0x7F * kOnes) & (0x80 * kOnes)) >> 3;
    uint64_t eight;
    std::memcpy(&eight, q->data() + 8 * i, sizeof(eight));
    eight |= spread;
    std::memcpy(q->data() + 8 * i, &eight, sizeof(eight));
  }
}
// Calls `f` with 0, 1, … as constants: shifts by constants are what vectors have.
template <int count, typename F>
void Unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (f(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, count>());
}

void Q4_0(const uint8_t* b, float* out) {
  Row q = Nibbles(b + 2);
  Add(-8, &q);
  Scale<kBlock>(q.data(), Half(b), out);
}
void Q4_1(const uint8_t* b, float* out) {
  const Row q = Nibbles(b + 4);
  ScaleAdd<kBlock>(q.data(), Half(b), Half(b + 2), out);
}
void Q5_0(const uint8_t* b, float* out) {
  Row q = Nibbles(b + 6);
  AddFifth(b + 2, &q);
  Add(-16, &q);
  Scale<kBlock>(q.data(), Half(b), out);
}
void Q5_1(const uint8_t* b, float* out) {
  Row q = Nibbles(b + 8);
  AddFifth(b + 4, &q);
  ScaleAdd<kBlock>(q.data(), Half(b), Half(b + 2), out);
}
void Q8_0(const uint8_t* b, float* out) {
  Row q;
  std::memcpy(q.data(), b + 2, kBlock);
  Scale<kBlock>(q.data(), Half(b), out);
}

// Two bits each: 32 bytes hold four rows of 32 elements, a shift apart.
void Q2_K(const uint8_t* b, float* out) {
  const uint8_t *scales = b, *qs = b + 16;
  const float d = Half(b + 80), least = Half(b + 82);
  Unrolled<8>([&](auto row) {
    const Row q = Bits<2 * (row % 4), 2>(qs + row / 4 * kBlock);
    for (int s = 2 * row; s < 2 * row + 2; ++s) {
      ScaleLess<16>(q.data() + s % 2 * 16, d * static_cast<float>(Low(scales[s])),
                    least * static_cast<float>(High(scales[s])), out + 16 * s);
    }
  });
}

void Q3_K(const uint8_t* b, float* out) {
  const uint8_t *high = b, *qs = b + 32, *scales = b + 96;
  const float d = Half(b + 108);
  Unrolled<8>([&](auto row) {
    Row q = Bits<2 * (row % 4), 2>(qs + row / 4 * kBlock);
    AddBits<row, 2>(high, &q);
    Add(-4, &q);
    for (int s = 2 * row; s < 2 * row + 2; ++s) {
      const int four = s < 8 ? Low(scales[s]) : High(scales[s - 8]);
      const int two = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
      Scale<16>(q.data() + s % 2 * 16, d * static_cast<float>((four | two << 4) - 32), out + 16 * s);
    }
  });
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

// 32 bytes hold 64 elements, the first 32 in the low nibbles.
void Q4_K(const uint8_t* b, float* out) {
  const Scales scales = ScalesOf(b);
  Unrolled<8>([&](auto row) {
    const Row q = Bits<row % 2 * 4, 4>(b + 16 + row / 2 * kBlock);
    ScaleLess<kBlock>(q.data(), scales.scale[row], scales.least[row], out + kBlock * row);
  });
}
void Q5_K(const uint8_t* b, float* out) {
  const Scales scales = ScalesOf(b);
  Unrolled<8>([&](auto row) {
    Row q = Bits<row % 2 * 4, 4>(b + 48 + row / 2 * kBlock);
    AddBits<row, 4>(b + 16, &q);
    ScaleLess<kBlock>(q.data(), scales.scale[row], scales.least[row], out + kBlock * row);
  });
}
void Q6_K(const uint8_t* b, float* out) {
  const float d = Half(b + 208);
  Unrolled<8>([&](auto row) {
    constexpr int half = row / 4, part = row % 4;  // of 128 elements, and which 32 of them
    Row q = Bits<(part < 2 ? 0 : 4), 4>(b + 64 * half + part % 2 * kBlock);
    AddBits<2 * part, 4, 2>(b + 128 + kBlock * half, &q);
    Add(-32, &q);
    for (int s = 2 * row; s < 2 * row + 2; ++s) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + s]));
      Scale<16>(q.data() + s % 2 * 16, scale, out + 16 * s);
    }
  });
}

// Four bits that stand for one of 16 values: those of a block are multiplied once.
void ByTable(const uint8_t* bytes, const std::array<int, 16>& table, float scale, float* out) {
  std::array<float, 16> values;
  for (size_t i = 0; i < 16; ++i) values[i] = scale * static_cast<float>(table[i]);
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = values[static_cast<size_t>(Low(bytes[i]))];
    out[i + kBlock / 2] = values[static_cast<size_t>(High(bytes[i]))];
  }
}

constexpr std::array<int, 16> kUneven = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
void Iq4Nl(const uint8_t* b, float* out) { ByTable(b + 2, kUneven, Half(b), out); }
void Iq4Xs(const uint8_t* b, float* out) {
  const float d = Half(b);
  const int high = U16(b + 2);
  for (int s = 0; s < kSuper / kBlock; ++s) {
    const uint8_t byte = b[4 + s / 2];
    const int scale = (s % 2 == 0 ? Low(byte) : High(byte)) | (high >> (2 * s) & 3) << 4;
    ByTable(b + 8 + 16 * s, kUneven, d * static_cast<float>(scale - 32), out + kBlock * s);
  }
}

// Twice the values of f4e2m1; the scale is half a power of two.
constexpr std::array<int, 16> kE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
void Mxfp4(const uint8_t* b, float* out) {
  const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (b[0] - 1u) << 23;
  ByTable(b + 1, kE2M1, std::bit_cast<float>(bits), out);
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

const GgufType* PlainGgufType(DType dtype) {
  const auto found = std::ranges::find_if(
      kTypes, [&](const GgufType& type) { return type.dtype == dtype && type.dequantize == nullptr; });
  return found == std::end(kTypes) ? nullptr : found;
}

void Dequantize(const GgufType& type, std::span<const std::byte> blocks, std::span<float> out) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks.data());
  const size_t elements = static_cast<size_t>(type.elements), bytes = static_cast<size_t>(type.bytes);
  for (size_t i = 0; (i + 1) * elements <= out.size(); ++i)
    type.dequantize(block + i * bytes, out.data() + i * elements);
}

}  // namespace weft
