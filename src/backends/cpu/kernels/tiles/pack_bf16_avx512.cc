// Rows of bf16 to pairs: what packing a row-major B costs is a quarter of the product of 64 x 784 x 512 without it.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12's own header passes undefined vectors through
#endif
#include <immintrin.h>

#include <cstdint>

namespace weft::cpu {

void PairRowsAvx512(const uint16_t* low, const uint16_t* high, int64_t lanes, uint32_t* out) {
  for (int64_t i = 0; i < lanes; i += 16) {
    const __mmask16 mask = lanes - i >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (lanes - i)) - 1);
    const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, low + i));
    const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, high + i));
    _mm512_mask_storeu_epi32(out + i, mask, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
  }
}

}  // namespace weft::cpu
