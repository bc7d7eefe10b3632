// Vectors of an instruction set for loops that are written once and compiled per set (*_lanes.h): everything is in an
// anonymous namespace, so that no set's code is taken for another's.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12's own header passes undefined vectors through
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace weft::cpu {
namespace {

template <typename T, int kLanes>
struct Lanes {
  typedef T V __attribute__((vector_size(kLanes * sizeof(T))));
};

// a * b + c: fused where the path has it. The compiler is told to contract nothing.
#ifdef __FMA__
inline float Fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double Fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline __m128 Fused(__m128 a, __m128 b, __m128 c) { return _mm_fmadd_ps(a, b, c); }
inline __m128d Fused(__m128d a, __m128d b, __m128d c) { return _mm_fmadd_pd(a, b, c); }
inline __m256 Fused(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256d Fused(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#ifdef __AVX512F__
inline __m512 Fused(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
inline __m512d Fused(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
#endif
#else
template <typename V>
inline V Fused(V a, V b, V c) {
  return a * b + c;
}
#endif

template <typename V, typename T>
[[gnu::always_inline]] inline V Load(const T* at) {
  V value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
template <typename V, typename T>
[[gnu::always_inline]] inline void Store(T* at, V value) {
  std::memcpy(at, &value, sizeof(value));
}

// Calls f with the constants 0 to n - 1: arrays of vectors indexed by them live in registers.
template <int n, int i = 0, typename F>
[[gnu::always_inline]] inline void Unroll(F f) {
  if constexpr (i < n) {
    f.template operator()<i>();
    Unroll<n, i + 1>(f);
  }
}

// In the high half: the nearest even bf16 of what is no NaN with low digits.
template <typename Words>
[[gnu::always_inline]] inline Words RoundedBits(Words bits) {
  return bits - (((bits >> 16) & 1) ^ static_cast<uint32_t>(-0x7FFF));
}

}  // namespace
}  // namespace weft::cpu
