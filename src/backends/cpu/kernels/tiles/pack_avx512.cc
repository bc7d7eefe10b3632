// The 16x16 transposition of 32-bit words in registers: 64 shuffles for 256 elements, five times the scalar loop. And
// copies of rows: what packing six columns of A costs by memcpy is a fifth of the product of them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12's own header passes undefined vectors through
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "src/backends/cpu/kernels/tiles/pack.h"

namespace weft::cpu {

void Transpose16Avx512(const uint32_t* src, int64_t src_stride, uint32_t* dst, int64_t dst_stride) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(src + i * src_stride);
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(dst + i * dst_stride, r[i]);
}

void CopyRowsAvx512(const uint32_t* src, int64_t src_stride, int64_t rows, int64_t lanes, uint32_t* dst,
                    int64_t dst_stride) {
  const __mmask16 tail = static_cast<__mmask16>((1u << (lanes % 16)) - 1);
  const int64_t whole = lanes / 16 * 16;
  for (int64_t row = 0; row < rows; ++row, src += src_stride, dst += dst_stride) {
    const uint32_t* const ahead = src + std::min<int64_t>(kRowsAhead, rows - 1 - row) * src_stride;
    for (int64_t lane = 0; lane < whole; lane += 16) {
      __builtin_prefetch(ahead + lane);
      _mm512_storeu_si512(dst + lane, _mm512_loadu_si512(src + lane));
    }
    if (tail != 0) {
      __builtin_prefetch(ahead + whole);
      _mm512_mask_storeu_epi32(dst + whole, tail, _mm512_maskz_loadu_epi32(tail, src + whole));
    }
  }
}

}  // namespace weft::cpu
