// Vectors of bf16 and f16 to vectors of f32 and back, for loops that are compiled per instruction set; everything is in an anonymous
// namespace. Where there are no such instructions there is nothing here.
#pragma once

#include "src/backends/cpu/kernels/tiles/lanes.h"

namespace weft::cpu {
namespace {

#ifdef __AVX2__
#ifdef __AVX512F__
constexpr int kHalves = 16;
using Wides = __m512;
using Halves = __m256i;
inline Wides WidenVector(bool bf16, Halves bits) {
  if (!bf16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Halves NarrowVector(bool bf16, Wides value) {
  if (!bf16) return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512i bits = _mm512_castps_si512(value), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, high, _mm512_set1_epi32(0x40)));
}
#else
constexpr int kHalves = 8;
using Wides = __m256;
using Halves = __m128i;
inline Wides WidenVector(bool bf16, Halves bits) {
  if (!bf16) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Halves NarrowVector(bool bf16, Wides value) {
  if (!bf16) return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i bits = _mm256_castps_si256(value), high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i words = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
#endif
#endif

}  // namespace
}  // namespace weft::cpu
