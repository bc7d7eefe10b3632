// Copies of operand blocks in the order that register tiles read them. Widens bf16 and f16 where the target has no
// dot product for them, pairs K where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backends/cpu/jit/isa.h"
#include "src/runtime/dtype.h"

namespace weft::cpu {

// The type and order of packed elements.
enum class PackKind : uint8_t {
  kF32,
  kF64,    // copied, as integers of their width are
  kPairs,  // bf16 and i16, two K side by side in 32 bits
  kWidenBF16,
  kWidenF16,  // to f32
  kPairsI8,
  kPairsU8,  // to pairs of i16
  kQuads,    // bytes, four K side by side in 32 bits
  // The same for B, behind a row of sums: -128 times the sum of each lane for i8, 128 times for u8 (micro.h).
  kQuadsI8,
  kQuadsU8,
};
inline int PackedElementBytes(PackKind kind) { return kind == PackKind::kF64 ? 8 : 4; }
// Packed steps for k elements: half as many pairs.
inline bool IsPairs(PackKind kind) {
  return kind == PackKind::kPairs || kind == PackKind::kPairsI8 || kind == PackKind::kPairsU8;
}
inline bool HasSums(PackKind kind) { return kind == PackKind::kQuadsI8 || kind == PackKind::kQuadsU8; }
inline bool IsQuads(PackKind kind) { return kind == PackKind::kQuads || HasSums(kind); }
// How A is packed beside a B of this kind.
inline PackKind RowsOf(PackKind kind) { return HasSums(kind) ? PackKind::kQuads : kind; }
inline int64_t PackedSteps(PackKind kind, int64_t k) {
  if (IsQuads(kind)) return k == 0 ? 0 : (k + 3) / 4 + HasSums(kind);
  return IsPairs(kind) ? (k + 1) / 2 : k;
}
// Elements of K that a step reads where they lie.
inline int64_t StepElements(PackKind kind) { return IsQuads(kind) ? 4 : kind == PackKind::kPairs ? 2 : 1; }

// A strided block: `step` runs along K, `lane` along the packed (vector or row) dimension. Strides in elements.
struct PackSource {
  const void* data = nullptr;
  int64_t step_stride = 0;
  int64_t lane_stride = 1;
};

// Writes PackedSteps(k) rows of `width` elements; lanes from `lanes` to `width` become zero, and so does what a last pair or four
// lacks. `target` picks the 16x16 register transposition where lanes are not contiguous.
void Pack(const CpuTarget& target, PackKind kind, const PackSource& source, int64_t k, int64_t lanes, int64_t width,
          void* destination);

// f32 to bf16 (round to nearest even, NaN stays NaN) and f16; rows of `cols`.
void Narrow(DType to, const float* from, int64_t from_stride, void* destination, int64_t to_stride, int64_t rows,
            int64_t cols);

float WidenF16(uint16_t bits);
inline float WidenBF16(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &word, 4);
  return value;
}
uint16_t NarrowBF16(float value);
uint16_t NarrowF16(float value);

// Rows of B lie pages apart, where no processor fetches ahead by itself: packing asks for what comes so many rows later.
inline constexpr int64_t kRowsAhead = 16;

// `rows` rows of `lanes` words of 32 bits, strides in words (pack_avx512.cc).
void CopyRowsAvx512(const uint32_t* src, int64_t src_stride, int64_t rows, int64_t lanes, uint32_t* dst,
                    int64_t dst_stride);

// out[i] = low[i] | high[i] << 16 for i in [0, lanes) (pack_bf16_avx512.cc).
void PairRowsAvx512(const uint16_t* low, const uint16_t* high, int64_t lanes, uint32_t* out);

// dst[c * dst_stride + r] = src[r * src_stride + c] for 16 x 16 words of 32 bits, strides in words (pack_avx512.cc).
void Transpose16Avx512(const uint32_t* src, int64_t src_stride, uint32_t* dst, int64_t dst_stride);

}  // namespace weft::cpu
