// The inner loops of ChannelKernels::gather_pairs, depthwise convolution of bf16 in pairs: of 32 channels those of even
// numbers in one vector and those of odd ones in another. A shift or a mask widens them, no shuffle, of which there are two a
// cycle; the kernel lies so. Included by conv_depthwise_lanes.h and by conv_depthwise_avx512bf16.cc, which has one conversion
// where others round step by step.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/backends/cpu/kernels/conv/conv_depthwise_tiles.h"

namespace weft::cpu {
namespace {

using Sums = Lanes<float, 16>::V;
using SumBits = Lanes<uint32_t, 16>::V;
// Ends a vector of sums that are bf16, and become one again, in the high half.
[[gnu::always_inline]] inline SumBits EndedBits(const EndingVectors<Sums>& ending, Sums sum) {
  const SumBits rounded = RoundedBits(Load<SumBits>(&sum)) & 0xFFFF0000u;
  sum = Load<Sums>(&rounded) * ending.factor + ending.summand;
  sum = _mm512_min_ps(ending.most, _mm512_max_ps(ending.least, sum));  // a NaN stays
  return RoundedBits(Load<SumBits>(&sum));
}

constexpr int64_t kPairs = 32;

template <int kHalf>
[[gnu::always_inline]] inline Sums LoadHalf(const uint16_t* at) {
  const __m512i both = Load<__m512i>(at);
  return _mm512_castsi512_ps(kHalf == 0 ? _mm512_slli_epi32(both, 16)
                                        : _mm512_and_si512(both, _mm512_set1_epi32(-65536)));
}
template <int kHalf>
[[gnu::always_inline]] inline Sums LoadHalf(const float* at) {
  const __m512i numbers = _mm512_add_epi32(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                                           _mm512_set1_epi32(kHalf));
  return _mm512_permutex2var_ps(Load<Sums>(at), numbers, Load<Sums>(at + kPairs / 2));
}

[[maybe_unused]] void PairRow(const uint16_t* row, int64_t channels, float* to) {
  for (int64_t c = 0; c < channels; c += kPairs, to += kPairs) {
    const uint16_t* const at = row + std::min(c, channels - kPairs);
    Store(to, LoadHalf<0>(at));
    Store(to + kPairs / 2, LoadHalf<1>(at));
  }
}

#ifdef __AVX512BF16__
// The machine converts the sums of both halves into one vector, which two interleavings with zeros widen again, 4 sums of each
// 8 in one vector and the others in the other. It takes denormals for zeros: for Endings in which that is the same.
struct PairEnding {
  explicit PairEnding(const Ending& ending, int64_t c)
      : low(Numbers(ending, c, 0)),
        high(Numbers(ending, c, 8)),
        order(_mm512_setr_epi32(0x80000, 0x90001, 0xA0002, 0xB0003, 0x180010, 0x190011, 0x1A0012, 0x1B0013, 0xC0004,
                                0xD0005, 0xE0006, 0xF0007, 0x1C0014, 0x1D0015, 0x1E0016, 0x1F0017)) {}
  static EndingVectors<Sums> Numbers(const Ending& ending, int64_t c, int first) {
    const __m512i from = _mm512_add_epi32(_mm512_setr_epi32(0, 2, 4, 6, 16, 18, 20, 22, 1, 3, 5, 7, 17, 19, 21, 23),
                                          _mm512_set1_epi32(first));
    const auto numbers = [&](const float* at) {
      return _mm512_permutex2var_ps(Load<Sums>(at + c), from, Load<Sums>(at + c + kPairs / 2));
    };
    return EndingVectors<Sums>(ending, numbers(ending.factor), numbers(ending.summand));
  }
  [[gnu::always_inline]] void Store(Sums even, Sums odd, uint16_t* y) const {
    const auto ended = [](const EndingVectors<Sums>& numbers, __m512i words) __attribute__((always_inline)) {
      const Sums sum = _mm512_castsi512_ps(words) * numbers.factor + numbers.summand;
      return _mm512_min_ps(numbers.most, _mm512_max_ps(numbers.least, sum));  // a NaN stays
    };
    const auto both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
    const Sums first = ended(low, _mm512_unpacklo_epi16(__m512i{}, both));
    const Sums second = ended(high, _mm512_unpackhi_epi16(__m512i{}, both));
    cpu::Store(y, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
  }
  EndingVectors<Sums> low, high;
  __m512i order;
};
#else
struct PairEnding {
  PairEnding(const Ending& ending, int64_t c)
      : even(ending, LoadHalf<0>(ending.factor + c), LoadHalf<0>(ending.summand + c)),
        odd(ending, LoadHalf<1>(ending.factor + c), LoadHalf<1>(ending.summand + c)) {}
  [[gnu::always_inline]] void Store(Sums even_sums, Sums odd_sums, uint16_t* y) const {
    cpu::Store(y, EndedBits(even, even_sums) >> 16 | (EndedBits(odd, odd_sums) & 0xFFFF0000u));
  }
  EndingVectors<Sums> even, odd;
};
#endif

// kStride: of rows of three taps; 0 if there are no such. Elements of a row that several pixels read are loaded once,
// for both halves.
template <int kStride, int kPixels>
void PairsTile(const ChannelRun<float>& run, int64_t pixel) {
  constexpr int kTaps = kStride == 0 ? 1 : 3, kStep = std::max(1, kStride);
  const int64_t step = run.x_step / kStep, from = pixel * run.x_step;
  uint16_t* const y = FirstOf<float, true>(run, pixel);
  const auto tap = [&](int64_t t) { return reinterpret_cast<const uint16_t*>(run.x[t]) + from; };
  const bool lacks_first = run.lacks_first && pixel == 0, lacks_last = run.lacks_last && pixel + kPixels == run.pixels;
  const uint16_t* const ahead = run.taps > 0 ? tap(run.taps - 1) + kPixels * run.x_step : y;
  for (int64_t block = 0; block < run.channels; block += kPairs) {
    const int64_t c = std::min(block, run.channels - kPairs);
    Unroll<kPixels>([&]<int p>() __attribute__((always_inline)) {
      Unroll<kStep>([&]<int s>()
                        __attribute__((always_inline)) { __builtin_prefetch(ahead + p * run.x_step + s * step + c); });
      __builtin_prefetch(y + (p + kPixels) * run.y_step + c, 1);
    });
    Sums even[kPixels], odd[kPixels];
    Unroll<kPixels>([&]<int p>() __attribute__((always_inline)) { even[p] = odd[p] = Sums{}; });
    for (int64_t t = 0; t < run.taps; t += kTaps) {
      const uint16_t* const x = tap(t) + c;
      Sums low[kTaps], high[kTaps];
      Unroll<kTaps>([&]<int u>() __attribute__((always_inline)) {
        low[u] = Load<Sums>(run.w[t + u] + block);
        high[u] = Load<Sums>(run.w[t + u] + block + kPairs / 2);
      });
      constexpr int kRead = (kPixels - 1) * kStep + kTaps;
      Unroll<kRead>([&]<int i>() __attribute__((always_inline)) {
        if constexpr (kStride != 0 && i == 0) {
          if (lacks_first) return;
        }
        if constexpr (kStride != 0 && i == kRead - 1) {
          if (lacks_last) return;
        }
        const Sums first = LoadHalf<0>(x + i * step), second = LoadHalf<1>(x + i * step);
        Unroll<kTaps>([&]<int u>() __attribute__((always_inline)) {
          constexpr int p = (i - u) / kStep;
          if constexpr (i >= u && (i - u) % kStep == 0 && p < kPixels) {
            even[p] = Fused(first, low[u], even[p]);
            odd[p] = Fused(second, high[u], odd[p]);
          }
        });
      });
    }
    const PairEnding ending(run.ending, c);
    Unroll<kPixels>([&]<int p>()
                        __attribute__((always_inline)) { ending.Store(even[p], odd[p], y + p * run.y_step + c); });
  }
}

void GatherPairs(const ChannelRun<float>& run) {
  if (run.stride == 1) return ForEachTile(run.pixels, [&]<int n>(int64_t at) { PairsTile<1, n>(run, at); });
  if (run.stride == 2) return ForEachTile(run.pixels, [&]<int n>(int64_t at) { PairsTile<2, n>(run, at); });
  ForEachTile(run.pixels, [&]<int n>(int64_t at) { PairsTile<0, n>(run, at); });
}

}  // namespace
}  // namespace weft::cpu
