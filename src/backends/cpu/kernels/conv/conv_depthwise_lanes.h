// The inner loops of conv_depthwise.h, written once over a vector type and compiled per instruction set. Included by
// conv_depthwise_{portable,avx2,avx512}.cc; everything is in an anonymous namespace and calls nothing that is not.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/backends/cpu/kernels/conv/conv_depthwise.h"
#ifdef __AVX512F__
#include "src/backends/cpu/kernels/conv/conv_depthwise_pairs_lanes.h"
#endif
#include "src/backends/cpu/kernels/conv/conv_depthwise_tiles.h"
#include "src/backends/cpu/kernels/tiles/halves_vectors.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"
#include "src/backends/cpu/kernels/tiles/pack.h"

namespace weft::cpu {
namespace {

// Calls f.operator()<V>(c) for vectors that cover the channels. The last one goes back as far as it must to be whole:
// it repeats channels where `overlap` allows that; else the rest goes in smaller vectors.
template <typename T, int kLanes, typename F>
[[gnu::always_inline]] inline void ForEachVector(int64_t channels, int64_t c, bool overlap, F f) {
  using V = typename Lanes<T, kLanes>::V;
  for (; c + kLanes <= channels; c += kLanes) f.template operator()<V>(c);
  if (c == channels) return;
  if (overlap && channels >= kLanes) return f.template operator()<V>(channels - kLanes);
  if constexpr (kLanes > 4) {
    ForEachVector<T, kLanes / 2>(channels, c, overlap, f);
  } else {
    for (; c < channels; ++c) f.template operator()<T>(c);
  }
}

// A vector of sums, as NarrowBF16 and NarrowF16 have it.
template <typename V>
[[gnu::always_inline]] inline void StoreNarrow(bool bf16, uint16_t* at, V sums) {
#ifdef __AVX2__
  if constexpr (sizeof(V) == sizeof(Wides)) return Store(at, NarrowVector(bf16, Load<Wides>(&sums)));
#endif
  float values[sizeof(V) / sizeof(float)];
  std::memcpy(values, &sums, sizeof(V));
  for (const float value : values) *at++ = bf16 ? NarrowBF16(value) : NarrowF16(value);
}

// A vector of T, or of bf16 to widen.
template <typename V, typename T, typename In>
[[gnu::always_inline]] inline V LoadWide(const In* at) {
  if constexpr (std::is_same_v<In, T>) {
    return Load<V>(at);
  } else if constexpr (std::is_same_v<V, T>) {
    return WidenBF16(*at);
  } else {
#ifdef __AVX512F__
    if constexpr (sizeof(V) == sizeof(Wides))
      return WidenVector(true, Load<Halves>(at));  // g++ 12 converts half by half
#endif
    using Words = WordsOf<V, T>;
    const auto bits = __builtin_convertvector(Load<typename Lanes<uint16_t, sizeof(V) / sizeof(T)>::V>(at), Words)
                      << 16;
    return Load<V>(&bits);
  }
}

template <typename V, typename Out>
[[gnu::always_inline]] inline void StoreEnded(const EndingVectors<V>& ending, Out* y, V sum) {
  constexpr bool kNarrow = sizeof(Out) == 2;
  using Words = std::conditional_t<std::is_same_v<V, float>, uint32_t, WordsOf<V, float>>;
#ifdef __AVX512F__
  if constexpr (kNarrow && sizeof(V) == sizeof(Wides)) {
    return Store(y, _mm512_cvtepi32_epi16((__m512i)(EndedBits(ending, sum) >> 16)));
  }
#endif
  if constexpr (kNarrow) {
    const Words bits = RoundedBits(Load<Words>(&sum)) & 0xFFFF0000u;
    sum = Load<V>(&bits);
  }
  sum = sum * ending.factor + ending.summand;
#ifdef __AVX512F__
  if constexpr (sizeof(V) == sizeof(Wides)) {
    sum = _mm512_min_ps(ending.most, _mm512_max_ps(ending.least, sum));  // a NaN stays
  } else {
    sum = sum < ending.least ? ending.least : sum;
    sum = sum > ending.most ? ending.most : sum;
  }
#else
  sum = sum < ending.least ? ending.least : sum;
  sum = sum > ending.most ? ending.most : sum;
#endif
  if constexpr (!kNarrow) {
    Store(y, sum);
  } else if constexpr (std::is_same_v<V, float>) {
    *y = static_cast<uint16_t>(RoundedBits(Load<Words>(&sum)) >> 16);
  } else {
    const Words bits = RoundedBits(Load<Words>(&sum)) >> 16;
    Store(y, __builtin_convertvector(bits, typename Lanes<uint16_t, sizeof(V) / sizeof(float)>::V));
  }
}

template <typename T, bool kNarrow, int kPixels, typename V, typename Out>
[[gnu::always_inline]] inline void StoreSums(const ChannelRun<T>& run, int64_t c, Out* y, const V (&sums)[kPixels]) {
  const int64_t step = run.y_step;
  if constexpr (std::is_same_v<T, float>) {
    if (run.ending.kind != EndingKind::kNone) {
      const EndingVectors<V> ending(run.ending, c);
      Unroll<kPixels>([&]<int p>()
                          __attribute__((always_inline)) { StoreEnded<V>(ending, y + p * step + c, sums[p]); });
      return;
    }
  }
  const bool bf16 = run.narrow_to == DType::kBF16;
  Unroll<kPixels>([&]<int p>() __attribute__((always_inline)) {
    if constexpr (kNarrow) {
      StoreNarrow(bf16, y + p * step + c, sums[p]);
    } else {
      Store(y + p * step + c, sums[p]);
    }
  });
}

template <typename T, typename In, int kLanes, int kPixels, bool kNarrow>
void GatherTile(const ChannelRun<T>& run, int64_t pixel) {
  const int64_t step = run.x_step, from = pixel * step;
  auto* const y = FirstOf<T, kNarrow>(run, pixel);
  const auto tap = [&](int64_t t) { return reinterpret_cast<const In*>(run.x[t]); };
  // Each step asks for what the next tile will find new, a line of x and one of y: pixels lie too far apart for the
  // processor to see a stream (about half of the time from memory, 15 to 20 % more from a cache).
  const In* const ahead = run.taps > 0 ? tap(run.taps - 1) + from + kPixels * step : reinterpret_cast<const In*>(y);
  ForEachVector<T, kLanes>(run.channels, 0, true, [&]<typename V>(int64_t c) __attribute__((always_inline)) {
    V sums[kPixels];
    Unroll<kPixels>([&]<int p>() __attribute__((always_inline)) {
      sums[p] = V{};
      if (c % (64 / static_cast<int64_t>(sizeof(In))) == 0) {
        __builtin_prefetch(ahead + p * step + c);
        __builtin_prefetch(y + (p + kPixels) * run.y_step + c, 1);
      }
    });
    for (int64_t t = 0; t < run.taps; ++t) {
      const In* const x = tap(t) + from + c;
      const V w = Load<V>(run.w[t] + c);
      Unroll<kPixels>(
          [&]<int p>() __attribute__((always_inline)) { sums[p] = Fused(LoadWide<V, T>(x + p * step), w, sums[p]); });
    }
    StoreSums<T, kNarrow, kPixels>(run, c, y, sums);
  });
}

// Rows of three taps: what several pixels read of a row is loaded, and widened, once. The same sums in the same order.
template <typename In, int kLanes, int kStride, int kPixels, bool kNarrow>
void GatherRowsTile(const ChannelRun<float>& run, int64_t pixel) {
  constexpr int kRead = (kPixels - 1) * kStride + 3;
  using V = typename Lanes<float, kLanes>::V;
  const int64_t step = run.x_step / kStride, from = pixel * run.x_step;
  auto* const y = FirstOf<float, kNarrow>(run, pixel);
  const auto tap = [&](int64_t t) { return reinterpret_cast<const In*>(run.x[t]) + from; };
  const In* const ahead = tap(run.taps - 1) + kPixels * run.x_step;
  for (int64_t c = 0; c < run.channels;
       c = c + kLanes >= run.channels ? run.channels : std::min(c + kLanes, run.channels - kLanes)) {
    V sums[kPixels];
    Unroll<kPixels>([&]<int p>() __attribute__((always_inline)) {
      sums[p] = V{};
      if (c % (64 / static_cast<int64_t>(sizeof(In))) == 0) {
        Unroll<kStride>(
            [&]<int s>() __attribute__((always_inline)) { __builtin_prefetch(ahead + (p * kStride + s) * step + c); });
        __builtin_prefetch(y + (p + kPixels) * run.y_step + c, 1);
      }
    });
    for (int64_t t = 0; t < run.taps; t += 3) {
      const In* const x = tap(t) + c;
      V row[kRead];
      Unroll<kRead>([&]<int i>() __attribute__((always_inline)) { row[i] = LoadWide<V, float>(x + i * step); });
      Unroll<3>([&]<int u>() __attribute__((always_inline)) {
        const V w = Load<V>(run.w[t + u] + c);
        Unroll<kPixels>([&]<int p>()
                            __attribute__((always_inline)) { sums[p] = Fused(row[p * kStride + u], w, sums[p]); });
      });
    }
    StoreSums<float, kNarrow, kPixels>(run, c, y, sums);
  }
}

template <typename T, typename In, int kLanes, bool kNarrow>
void GatherTiles(const ChannelRun<T>& run) {
  // With 32 registers.
  if constexpr (std::is_same_v<T, float> && kLanes == 16) {
    if (run.stride == 1 && run.channels >= kLanes) {
      return ForEachTile(run.pixels, [&]<int n>(int64_t at) { GatherRowsTile<In, kLanes, 1, n, kNarrow>(run, at); });
    }
    if (run.stride == 2 && run.channels >= kLanes) {
      return ForEachTile(run.pixels, [&]<int n>(int64_t at) { GatherRowsTile<In, kLanes, 2, n, kNarrow>(run, at); });
    }
  }
  ForEachTile(run.pixels, [&]<int n>(int64_t at) { GatherTile<T, In, kLanes, n, kNarrow>(run, at); });
}

template <typename T, int kLanes>
void GatherRun(const ChannelRun<T>& run) {
  if constexpr (std::is_same_v<T, float>) {
    if (run.halves && run.narrow != nullptr) return GatherTiles<T, uint16_t, kLanes, true>(run);
    if (run.halves) return GatherTiles<T, uint16_t, kLanes, false>(run);
    if (run.narrow != nullptr) return GatherTiles<T, T, kLanes, true>(run);
  }
  GatherTiles<T, T, kLanes, false>(run);
}

constexpr int kMaxTaps = 10;         // weights whose sums are in registers; more find no pointer registers
constexpr int64_t kWeightTile = 32;  // pixels: their lines stay in the first cache while all channels pass

template <typename T, int kLanes, int kTaps>
void WeightsTile(const ChannelRun<T>& run, int64_t tap, int64_t pixel, int64_t pixels) {
  const T* x[kTaps];
  T* w[kTaps];
  Unroll<kTaps>([&]<int t>() __attribute__((always_inline)) {
    x[t] = run.x[tap + t] + pixel * run.x_step;
    w[t] = run.w[tap + t];
  });
  const T* const y = run.y + pixel * run.y_step;
  ForEachVector<T, kLanes>(run.channels, 0, false, [&]<typename V>(int64_t c) __attribute__((always_inline)) {
    V sums[kTaps];
    Unroll<kTaps>([&]<int t>() __attribute__((always_inline)) { sums[t] = V{}; });
    const T* from = y + c;
    int64_t at = c;
    for (int64_t p = 0; p < pixels; ++p) {
      const V g = Load<V>(from);
      Unroll<kTaps>([&]<int t>() __attribute__((always_inline)) { sums[t] = Fused(Load<V>(x[t] + at), g, sums[t]); });
      from += run.y_step;
      at += run.x_step;
    }
    Unroll<kTaps>([&]<int t>() __attribute__((always_inline)) { Store(w[t] + c, Load<V>(w[t] + c) + sums[t]); });
  });
}

template <typename T, int kLanes>
void WeightsRun(const ChannelRun<T>& run) {
  const int64_t cuts = (run.taps + kMaxTaps - 1) / kMaxTaps, tiles = (run.pixels + kWeightTile - 1) / kWeightTile;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t pixel = run.pixels * i / tiles, pixels = run.pixels * (i + 1) / tiles - pixel;
    for (int64_t j = 0; j < cuts; ++j) {
      const int64_t tap = run.taps * j / cuts;
      switch (run.taps * (j + 1) / cuts - tap) {
        case 1: WeightsTile<T, kLanes, 1>(run, tap, pixel, pixels); break;
        case 2: WeightsTile<T, kLanes, 2>(run, tap, pixel, pixels); break;
        case 3: WeightsTile<T, kLanes, 3>(run, tap, pixel, pixels); break;
        case 4: WeightsTile<T, kLanes, 4>(run, tap, pixel, pixels); break;
        case 5: WeightsTile<T, kLanes, 5>(run, tap, pixel, pixels); break;
        case 6: WeightsTile<T, kLanes, 6>(run, tap, pixel, pixels); break;
        case 7: WeightsTile<T, kLanes, 7>(run, tap, pixel, pixels); break;
        case 8: WeightsTile<T, kLanes, 8>(run, tap, pixel, pixels); break;
        case 9: WeightsTile<T, kLanes, 9>(run, tap, pixel, pixels); break;
        default: WeightsTile<T, kLanes, kMaxTaps>(run, tap, pixel, pixels); break;
      }
    }
  }
}

// --- spreading

template <typename T>
void SpreadPlain(const ChannelSpread<T>& s, int64_t begin, int64_t end) {
  for (int64_t p = 0; p < s.pixels; ++p) {
    const T* const in = s.in + p * s.from;
    T* const out = s.out + p * s.count;
    for (int64_t i = begin; i < end; ++i) out[i] = in[s.index[i]];
  }
}

void SpreadDoubles(const ChannelSpread<double>& s) { SpreadPlain(s, 0, s.count); }

// Neighbours come from near each other: one or two loads and a permutation for a vector, where the index does not fall
// back (it does between one channel of the groups and the next).
void SpreadFloats(const ChannelSpread<float>& s) {
#ifdef __AVX2__
#ifdef __AVX512F__
  constexpr int kWidth = 16;
#else
  constexpr int kWidth = 8;
#endif
  for (int64_t i = 0; i < s.count; i += kWidth) {
    const int64_t lanes = s.count - i < kWidth ? s.count - i : kWidth;
    int32_t relative[kWidth], most = 0, base = s.index[i];
    for (int64_t l = 0; l < lanes; ++l) base = s.index[i + l] < base ? s.index[i + l] : base;
    for (int64_t l = 0; l < kWidth; ++l) {
      relative[l] = l < lanes ? s.index[i + l] - base : 0;
      most = relative[l] > most ? relative[l] : most;
    }
    if (most >= 2 * kWidth) {
      SpreadPlain(s, i, i + lanes);
      continue;
    }
    const int64_t here = s.from - base;  // at least 1
    const float* in = s.in + base;
    float* out = s.out + i;
#ifdef __AVX512F__
    const auto mask = [](int64_t n) { return static_cast<__mmask16>(n <= 0 ? 0 : n >= 16 ? 0xFFFF : (1 << n) - 1); };
    const __mmask16 low = mask(here), high = mask(most < kWidth ? 0 : here - kWidth), store = mask(lanes);
    const __m512i index = _mm512_loadu_si512(relative);
    for (int64_t p = 0; p < s.pixels; ++p, in += s.from, out += s.count) {
      const __m512 first = _mm512_maskz_loadu_ps(low, in), second = _mm512_maskz_loadu_ps(high, in + kWidth);
      _mm512_mask_storeu_ps(out, store, _mm512_permutex2var_ps(first, index, second));
    }
#else
    const auto mask = [](int64_t n) {
      const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      return _mm256_cmpgt_epi32(_mm256_set1_epi32(n <= 0 ? 0 : n >= 8 ? 8 : static_cast<int>(n)), lane);
    };
    const __m256i low = mask(here), high = mask(most < kWidth ? 0 : here - kWidth), store = mask(lanes);
    const __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(relative));
    const __m256 far = _mm256_castsi256_ps(_mm256_cmpgt_epi32(index, _mm256_set1_epi32(kWidth - 1)));
    for (int64_t p = 0; p < s.pixels; ++p, in += s.from, out += s.count) {
      const __m256 first = _mm256_permutevar8x32_ps(_mm256_maskload_ps(in, low), index);
      const __m256 second = _mm256_permutevar8x32_ps(_mm256_maskload_ps(in + kWidth, high), index);
      _mm256_maskstore_ps(out, store, _mm256_blendv_ps(first, second, far));
    }
#endif
  }
#else
  SpreadPlain(s, 0, s.count);
#endif
}

template <int kBytes>
constexpr ChannelKernels Kernels(const HalvesKernels& halves) {
  return {&halves,
          {GatherRun<float, kBytes / 4>, WeightsRun<float, kBytes / 4>, SpreadFloats},
          {GatherRun<double, kBytes / 8>, WeightsRun<double, kBytes / 8>, SpreadDoubles},
#ifdef __AVX512F__
          PairRow,
          GatherPairs,
          kPairs
#endif
  };
}

}  // namespace
}  // namespace weft::cpu
