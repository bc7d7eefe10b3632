// The inner loops of few_rows.h, written once over a vector type and compiled per instruction set. Included by
// few_rows_{portable,avx2,avx512}.cc. Every column is summed in an order of its own that no cut changes.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/backends/cpu/kernels/product/few_rows.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"
#include "src/backends/cpu/kernels/tiles/pack.h"

namespace weft::cpu {
namespace {

// --- loads that widen

struct HalfBF16 {
  uint16_t bits;
};
struct HalfF16 {
  uint16_t bits;
};

template <typename V>
[[gnu::always_inline]] inline V Wide(const float* at) {
  return Load<V>(at);
}
template <typename V>
[[gnu::always_inline]] inline V Wide(const double* at) {
  return Load<V>(at);
}
template <typename V>
[[gnu::always_inline]] inline V Wide(const HalfBF16* at) {
#ifdef __AVX512F__
  if constexpr (sizeof(V) == 64) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load<__m256i>(at)), 16));
  }
#endif
#ifdef __AVX2__
  if constexpr (sizeof(V) == 32) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load<__m128i>(at)), 16));
  }
#endif
  if constexpr (sizeof(V) == 16) {
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_set_epi64x(0, Load<int64_t>(at))));
  }
  if constexpr (sizeof(V) == 4) {
    const uint32_t word = static_cast<uint32_t>(at->bits) << 16;
    return Load<float>(&word);
  }
}
template <typename V>
[[gnu::always_inline]] inline V Wide(const HalfF16* at) {
#ifdef __AVX512F__
  if constexpr (sizeof(V) == 64) return _mm512_cvtph_ps(Load<__m256i>(at));
#endif
#ifdef __AVX2__
  if constexpr (sizeof(V) == 32) return _mm256_cvtph_ps(Load<__m128i>(at));
#endif
  if constexpr (sizeof(V) == 16) {
    return _mm_setr_ps(WidenF16(at[0].bits), WidenF16(at[1].bits), WidenF16(at[2].bits), WidenF16(at[3].bits));
  }
  if constexpr (sizeof(V) == 4) return WidenF16(at->bits);
}

#ifdef __AVX512BF16__
template <typename V>
[[gnu::always_inline]] inline __m512bh Wide(const PairBF16* at) {
  return Load<__m512bh>(at);
}
inline __m512 Fused(__m512bh a, __m512bh b, __m512 c) { return _mm512_dpbf16_ps(c, a, b); }
#endif
// Elements of K that a lane takes in a step.
template <typename S>
constexpr int64_t kPerLane = std::is_same_v<S, PairBF16> ? 2 : 1;

template <typename V, typename T>
[[gnu::always_inline]] inline V Splat(T value) {
  if constexpr (sizeof(V) == sizeof(T)) {
    return value;
  } else {
    V all;
    for (size_t i = 0; i < sizeof(V) / sizeof(T); ++i) all[i] = value;
    return all;
  }
}

// Sums in registers; with 32 of them a quarter is left for what is loaded.
template <int kBytes>
constexpr int kSums = kBytes == 64 ? 16 : 8;
// Rows that pass over a piece of B together; more come back for it while it is in the first cache.
template <int kBytes>
constexpr int kTogether = kSums<kBytes> / 4;

// Calls f.operator()<n>(row) for all rows, n at a time.
template <int kMost, typename F>
[[gnu::always_inline]] inline void ForRows(int64_t rows, F f) {
  int64_t row = 0;
  for (; row + kMost <= rows; row += kMost) f.template operator()<kMost>(row);
  const int64_t rest = rows - row;
  if constexpr (kMost > 3) {
    if (rest == 3) f.template operator()<3>(row);
    if (rest == 2) f.template operator()<2>(row);
  }
  if (rest == 1) f.template operator()<1>(row);
}

// --- a lane is a column

// Rows of B at once: C is read and written once for so many. Each is a stream of its own; eight are the quickest as long as C
// is small beside B.
template <int kRows>
constexpr int64_t kSteps = kRows > 4   ? 32
                           : kRows > 2 ? 16
                                       : 8;

template <typename T, typename V, typename S, int kRows, int kVectors>
[[gnu::always_inline]] inline void AcrossTile(const FewRows<T>& run, int64_t row, int64_t k, int64_t steps,
                                              int64_t column) {
  constexpr int64_t kLanes = sizeof(V) / sizeof(T);
  const S* b = static_cast<const S*>(run.b) + k * run.b_stride + column;
  const T* const a = run.a + row * run.a_stride + k;
  T* const c = run.c + row * run.c_stride + column;
  V sums[kRows * kVectors];
  Unroll<kRows * kVectors>([&]<int i>() __attribute__((always_inline)) { sums[i] = V{}; });
  for (int64_t s = 0; s < steps; ++s, b += run.b_stride) {
    V w[kVectors];
    Unroll<kVectors>([&]<int v>() __attribute__((always_inline)) { w[v] = Wide<V>(b + v * kLanes); });
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      const V x = Splat<V>(a[r * run.a_stride + s]);
      Unroll<kVectors>([&]<int v>() __attribute__((always_inline)) {
        sums[r * kVectors + v] = Fused(x, w[v], sums[r * kVectors + v]);
      });
    });
  }
  // Sums of sums: a long K loses fewer digits than one by one.
  Unroll<kRows * kVectors>([&]<int i>() __attribute__((always_inline)) {
    T* const to = c + (i / kVectors) * run.c_stride + (i % kVectors) * kLanes;
    Store(to, k == 0 ? sums[i] : Load<V>(to) + sums[i]);
  });
}

// The columns that whole tiles leave: single vectors, then smaller ones.
template <typename T, int kBytes, typename S>
void AcrossRest(const FewRows<T>& run, int64_t k, int64_t steps, int64_t column) {
  if constexpr (kBytes >= 16) {
    constexpr int64_t kLanes = kBytes / sizeof(T);
    using V = typename Lanes<T, kLanes>::V;
    for (; column + kLanes <= run.end; column += kLanes) {
      for (int64_t row = 0; row < run.rows; ++row) AcrossTile<T, V, S, 1, 1>(run, row, k, steps, column);
    }
    AcrossRest<T, kBytes / 2, S>(run, k, steps, column);
  } else {
    for (; column < run.end; ++column) {
      for (int64_t row = 0; row < run.rows; ++row) AcrossTile<T, T, S, 1, 1>(run, row, k, steps, column);
    }
  }
}

// Every row of A at once: other rows of B lie in the same few sets of the first cache, and nothing is there for long.
template <typename T, int kBytes, typename S, int kRows>
void AcrossRows(const FewRows<T>& run) {
  constexpr int kVectors = kRows > 4 ? kSums<kBytes> / 8 : kRows > 2 ? kSums<kBytes> / 4 : 4;
  constexpr int64_t kLanes = kBytes / sizeof(T);
  using V = typename Lanes<T, kLanes>::V;
  for (int64_t k = 0; k < run.k; k += kSteps<kRows>) {
    const int64_t steps = run.k - k < kSteps<kRows> ? run.k - k : kSteps<kRows>;
    int64_t column = run.begin;
    for (; column + kVectors * kLanes <= run.end; column += kVectors * kLanes) {
      AcrossTile<T, V, S, kRows, kVectors>(run, 0, k, steps, column);
    }
    AcrossRest<T, kBytes, S>(run, k, steps, column);
  }
}

template <typename T, int kBytes, typename S>
void Across(const FewRows<T>& run) {
  switch (run.rows) {
    case 1: return AcrossRows<T, kBytes, S, 1>(run);
    case 2: return AcrossRows<T, kBytes, S, 2>(run);
    case 3: return AcrossRows<T, kBytes, S, 3>(run);
    case 4: return AcrossRows<T, kBytes, S, 4>(run);
    case 5: return AcrossRows<T, kBytes, S, 5>(run);
    case 6: return AcrossRows<T, kBytes, S, 6>(run);
    case 7: return AcrossRows<T, kBytes, S, 7>(run);
    default: return AcrossRows<T, kBytes, S, 8>(run);
  }
}

// --- a lane is a step of K

constexpr int kColumns = 8;  // at once, as many streams

// The sums of four vectors' lanes, or two's.
template <typename V>
[[gnu::always_inline]] inline auto Quarter(V v) {
  if constexpr (sizeof(V) == 16) {
    return v;
  } else {
    using T = std::remove_reference_t<decltype(v[0])>;
    using Half = typename Lanes<T, sizeof(V) / sizeof(T) / 2>::V;
    Half halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return Quarter<Half>(halves[0] + halves[1]);
  }
}
inline void SumLanes(const __m128* v, float* out) {
  const __m128 ab = _mm_unpacklo_ps(v[0], v[1]) + _mm_unpackhi_ps(v[0], v[1]);
  const __m128 cd = _mm_unpacklo_ps(v[2], v[3]) + _mm_unpackhi_ps(v[2], v[3]);
  Store(out, _mm_movelh_ps(ab, cd) + _mm_movehl_ps(cd, ab));
}
inline void SumLanes(const __m128d* v, double* out) {
  Store(out, _mm_unpacklo_pd(v[0], v[1]) + _mm_unpackhi_pd(v[0], v[1]));
  Store(out + 2, _mm_unpacklo_pd(v[2], v[3]) + _mm_unpackhi_pd(v[2], v[3]));
}

template <typename V, typename S>
[[gnu::always_inline]] inline auto WidePart(const S* at, int64_t count) {
  constexpr int64_t kMost = 16 * kPerLane<S>;
  S part[kMost] = {};
  std::memcpy(part, at, count * sizeof(S));
  return Wide<V>(part);
}

// Columns [column, column + count), which may be fewer than the tile has: then the last is summed again.
template <typename T, typename A, int kBytes, typename S, int kRows, int kCount>
[[gnu::always_inline]] inline void AlongTile(const FewRows<T, A>& run, int64_t row, int64_t column, int64_t count) {
  using V = typename Lanes<T, kBytes / sizeof(T)>::V;
  constexpr int64_t kStep = kBytes / sizeof(T) * kPerLane<S>;
  const A* const a = run.a + row * run.a_stride;
  const S* b[kCount];
  V sums[kCount * kRows];
  Unroll<kCount>([&]<int c>() __attribute__((always_inline)) {
    b[c] = static_cast<const S*>(run.b) + (column + (c < count ? c : count - 1)) * run.b_stride;
  });
  Unroll<kCount * kRows>([&]<int i>() __attribute__((always_inline)) { sums[i] = V{}; });
  int64_t k = 0;
  for (; k + kStep <= run.k; k += kStep) {
    decltype(Wide<V>(a)) x[kRows];
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) { x[r] = Wide<V>(a + r * run.a_stride + k); });
    Unroll<kCount>([&]<int c>() __attribute__((always_inline)) {
      const auto w = Wide<V>(b[c] + k);
      Unroll<kRows>([&]<int r>()
                        __attribute__((always_inline)) { sums[c * kRows + r] = Fused(x[r], w, sums[c * kRows + r]); });
    });
  }
  if (k < run.k) {
    Unroll<kCount>([&]<int c>() __attribute__((always_inline)) {
      const auto w = WidePart<V>(b[c] + k, run.k - k);
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        sums[c * kRows + r] = Fused(WidePart<V>(a + r * run.a_stride + k, run.k - k), w, sums[c * kRows + r]);
      });
    });
  }
  Unroll<kRows * kCount / 4>([&]<int i>() __attribute__((always_inline)) {
    constexpr int r = i % kRows, c = i / kRows * 4;
    if (c >= count) return;
    decltype(Quarter(V{})) four[4];
    Unroll<4>([&]<int l>() __attribute__((always_inline)) { four[l] = Quarter(sums[(c + l) * kRows + r]); });
    T out[4];
    SumLanes(four, out);
    const int64_t valid = count - c < 4 ? count - c : 4;
    std::memcpy(run.c + (row + r) * run.c_stride + column + c, out, valid * sizeof(T));
  });
}

template <typename T, int kBytes, typename S, typename A = T>
void Along(const FewRows<T, A>& run) {
  for (int64_t column = run.begin; column < run.end; column += kColumns) {
    const int64_t count = run.end - column < kColumns ? run.end - column : kColumns;
    ForRows<kTogether<kBytes>>(run.rows, [&]<int kRows>(int64_t row) __attribute__((always_inline)) {
      if constexpr (kRows * kColumns <= kSums<kBytes>) {
        AlongTile<T, A, kBytes, S, kRows, kColumns>(run, row, column, count);
      } else {
        for (int64_t c = 0; c < count; c += 4) {
          AlongTile<T, A, kBytes, S, kRows, 4>(run, row, column + c, count - c < 4 ? count - c : 4);
        }
      }
    });
  }
}

template <typename T, int kBytes, typename S>
constexpr FewRowsKernels::Of<T> LoopsOf() {
  return {Across<T, kBytes, S>, Along<T, kBytes, S>};
}
template <int kBytes>
constexpr FewRowsKernels Kernels() {
  return {LoopsOf<float, kBytes, float>(), LoopsOf<float, kBytes, HalfBF16>(), LoopsOf<float, kBytes, HalfF16>(),
          LoopsOf<double, kBytes, double>()};
}

}  // namespace
}  // namespace weft::cpu
