// The loops of pool_planes.h, written once over a vector type and compiled per instruction set. Included by
// pool_planes_{portable,avx2,avx512}.cc; everything is in an anonymous namespace and calls nothing that is not.
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "src/backends/cpu/kernels/pool/pool_planes.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"

namespace weft::cpu {
namespace {

template <int kLanes>
using Floats = typename Lanes<float, kLanes>::V;
template <int kLanes>
using Ints = typename Lanes<int32_t, kLanes>::V;
template <int kLanes>
using Words = typename Lanes<uint32_t, kLanes>::V;

// --- rows and their phases

template <int kLanes>
struct Pairs {
  using F = Floats<kLanes>;
  template <int kFirst, int... i>
  [[gnu::always_inline]] static F Every2nd(F a, F b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (2 * i + kFirst)...);
  }
  template <int kFirst, int... i>
  [[gnu::always_inline]] static F Zip(F a, F b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (kFirst + i / 2 + i % 2 * kLanes)...);
  }
};

inline unsigned Unordered(__m128 a, __m128 b) { return _mm_movemask_ps(_mm_cmpunord_ps(a, b)); }
// x where it is larger, which no NaN is.
inline __m128 Larger(__m128 x, __m128 best) { return _mm_max_ps(x, best); }
#ifdef __AVX2__
inline unsigned Unordered(__m256 a, __m256 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)); }
inline __m256 Larger(__m256 x, __m256 best) { return _mm256_max_ps(x, best); }
#endif
#ifdef __AVX512F__
inline unsigned Unordered(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
inline __m512 Larger(__m512 x, __m512 best) { return _mm512_max_ps(x, best); }
#endif

template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> FloatsOf(Words<kLanes> bits) {
  return Load<Floats<kLanes>>(&bits);
}

// Pairs of neighbours, the first ones and the second ones, of f32 or bf16.
template <int kLanes>
[[gnu::always_inline]] inline void LoadPairs(const float* x, Floats<kLanes>& even, Floats<kLanes>& odd) {
  constexpr std::make_integer_sequence<int, kLanes> kAll;
  const auto a = Load<Floats<kLanes>>(x), b = Load<Floats<kLanes>>(x + kLanes);
  even = Pairs<kLanes>::template Every2nd<0>(a, b, kAll);
  odd = Pairs<kLanes>::template Every2nd<1>(a, b, kAll);
}
template <int kLanes>
[[gnu::always_inline]] inline void LoadPairs(const uint16_t* x, Floats<kLanes>& even, Floats<kLanes>& odd) {
  const auto bits = Load<Words<kLanes>>(x);
  even = FloatsOf<kLanes>(bits << 16);
  odd = FloatsOf<kLanes>(bits & 0xFFFF0000u);
}
template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> LoadFloats(const float* x) {
  return Load<Floats<kLanes>>(x);
}
template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> LoadFloats(const uint16_t* x) {
#ifdef __AVX512F__  // g++ 12 converts half by half
  if constexpr (kLanes == 16)
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load<__m256i>(x)), 16));
#endif
  const auto bits = Load<typename Lanes<uint16_t, kLanes>::V>(x);
  return FloatsOf<kLanes>(__builtin_convertvector(bits, Words<kLanes>) << 16);
}
template <int kLanes>
[[gnu::always_inline]] inline void StoreFloats(float* x, Floats<kLanes> value) {
  Store(x, value);
}
// Stores as bf16: a NaN has no low digits, as no added number has, and an addition has made it quiet.
template <int kLanes>
[[gnu::always_inline]] inline void StoreFloats(uint16_t* x, Floats<kLanes> value) {
  const auto bits = RoundedBits(Load<Words<kLanes>>(&value)) >> 16;
#ifdef __AVX512F__
  if constexpr (kLanes == 16) return Store(x, _mm512_cvtepi32_epi16((__m512i)bits));
#endif
  Store(x, __builtin_convertvector(bits, typename Lanes<uint16_t, kLanes>::V));
}
inline float Wide(float x) { return x; }
inline float Wide(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  return Load<float>(&bits);
}

// even[i] = x[2 i], odd[i] = x[2 i + 1] for i below `pairs`. Tells whether there was a NaN.
template <int kLanes, typename T>
[[gnu::always_inline]] inline unsigned Unzip(const T* x, int64_t pairs, float* even, float* odd) {
  unsigned nan = 0;
  const auto some = [&](int64_t i) __attribute__((always_inline)) {
    Floats<kLanes> a, b;
    LoadPairs<kLanes>(x + 2 * i, a, b);
    nan |= Unordered(a, b);
    Store(even + i, a);
    Store(odd + i, b);
  };
  int64_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) some(i);
  if (i == pairs) return nan;
  if (pairs >= kLanes) {
    some(pairs - kLanes);
    return nan;
  }
  if constexpr (kLanes > 4) return Unzip<kLanes / 2>(x, pairs, even, odd);
  for (; i < pairs; ++i) {
    even[i] = Wide(x[2 * i]);
    odd[i] = Wide(x[2 * i + 1]);
    nan |= even[i] != even[i] || odd[i] != odd[i];
  }
  return nan;
}

// Where x[0] and x[1] lie among phases two columns apart.
struct EvenOdd {
  EvenOdd(const PlaneRun& p) {
    const int64_t low = p.columns.pad_lo;
    even = low % 2 * p.phase + low / 2;
    odd = (low + 1) % 2 * p.phase + (low + 1) / 2;
  }
  int64_t even, odd;
};

// Copies elements to f32, and tells whether there was a NaN.
template <int kLanes, typename T>
[[gnu::always_inline]] inline unsigned Copy(const T* from, int64_t count, float* to) {
  unsigned nan = 0;
  const auto some = [&]<int n>(int64_t i) __attribute__((always_inline)) {
    const auto x = LoadFloats<n>(from + i);
    nan |= Unordered(x, x);
    Store(to + i, x);
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) some.template operator()<kLanes>(i);
  for (; i + 4 <= count; i += 4) some.template operator()<4>(i);
  for (; i < count; ++i) {
    to[i] = Wide(from[i]);
    nan |= to[i] != to[i];
  }
  return nan;
}

// Calls fn with where the row of `count` elements begins: of f32, of bf16, or of f16 widened to `line`.
template <typename Fn>
[[gnu::always_inline]] inline auto WithRow(const PlaneRun& p, const void* rows, int64_t row, int64_t count, Fn fn) {
  if (p.dtype == DType::kF32) return fn(static_cast<const float*>(rows) + row * count);
  const uint16_t* const at = static_cast<const uint16_t*>(rows) + row * count;
  if (p.dtype == DType::kBF16) return fn(at);
  p.halves->widen(p.dtype, at, count, p.line);
  return fn(static_cast<const float*>(p.line));
}
// Likewise one that fn writes.
template <typename Fn>
[[gnu::always_inline]] inline void ToRow(const PlaneRun& p, void* rows, int64_t row, int64_t count, Fn fn) {
  if (p.dtype == DType::kF32) return fn(static_cast<float*>(rows) + row * count);
  uint16_t* const at = static_cast<uint16_t*>(rows) + row * count;
  if (p.dtype == DType::kBF16) return fn(at);
  fn(p.line);
  p.halves->narrow(p.dtype, p.line, count, at);
}

// Splits a row of the image into phases, and tells whether there was a NaN.
template <int kLanes>
[[gnu::always_inline]] inline unsigned SplitRow(const PlaneRun& p, int64_t row, float* phases) {
  const SpatialDim& w = p.columns;
  return WithRow(p, p.x, row, w.in, [&](auto* x) __attribute__((always_inline)) {
    if (w.stride == 1) return Copy<kLanes>(x, w.in, phases + w.pad_lo);
    unsigned nan = 0;
    if (w.stride == 2) {
      const EvenOdd at(p);
      nan = Unzip<kLanes>(x, w.in / 2, phases + at.even, phases + at.odd);
      if (w.in % 2 == 0) return nan;
      const float last = phases[at.even + w.in / 2] = Wide(x[w.in - 1]);
      return nan | (last != last);
    }
    int64_t phase = w.pad_lo % w.stride, at = w.pad_lo / w.stride;
    for (int64_t i = 0; i < w.in; ++i) {
      const float value = phases[phase * p.phase + at] = Wide(x[i]);
      nan |= value != value;
      if (++phase == w.stride) phase = 0, ++at;
    }
    return nan;
  });
}

// --- forward

// The best of several rows, the first of equals. `whole`: what is behind the columns may be written, too.
template <int kLanes, int kRows, bool kNan, typename Out>
[[gnu::always_inline]] inline void BestOf(const float* const* from, int64_t count, int64_t columns, bool whole,
                                          Out* to) {
  using F = Floats<kLanes>;
  const float* rows[kMostPlaneTaps];
  if constexpr (kRows != 0) count = kRows;
  for (int64_t t = 0; t < count; ++t) rows[t] = from[t];
  const auto best_at = [&](int64_t j) __attribute__((always_inline)) {
    F best = Load<F>(rows[0] + j);
    const auto take = [&](int64_t t) __attribute__((always_inline)) {
      const F x = Load<F>(rows[t] + j);
      if constexpr (kNan) {  // it wins, as IEEE's maximum says
        const Ints<kLanes> keep = (best >= x) | (best != best);
        best = keep ? best : x;
      } else {
        best = Larger(x, best);
      }
    };
    if constexpr (kRows != 0) {
      Unroll<kRows - 1>([&]<int t>() __attribute__((always_inline)) { take(t + 1); });
    } else {
      for (int64_t t = 1; t < count; ++t) take(t);
    }
    if constexpr (sizeof(Out) == 2) best += -0.0f;
    return best;
  };
  const int64_t end = whole ? columns : columns - kLanes + 1;
  int64_t j = 0;
  for (; j < end; j += kLanes) StoreFloats<kLanes>(to + j, best_at(j));
  if (j >= columns) return;
  if (columns >= kLanes) return StoreFloats<kLanes>(to + columns - kLanes, best_at(columns - kLanes));
  Out rest[kLanes];
  StoreFloats<kLanes>(rest, best_at(j));
  std::memcpy(to + j, rest, (columns - j) * sizeof(Out));
}
template <int kLanes, typename Out>
[[gnu::always_inline]] inline void BestOf(const float* const* rows, int64_t count, unsigned nan, int64_t columns,
                                          bool whole, Out* to) {
  if (nan != 0) return BestOf<kLanes, 0, true>(rows, count, columns, whole, to);
  if (count == 3) return BestOf<kLanes, 3, false>(rows, count, columns, whole, to);
  if (count == 2) return BestOf<kLanes, 2, false>(rows, count, columns, whole, to);
  BestOf<kLanes, 0, false>(rows, count, columns, whole, to);
}

template <int kLanes>
void PlaneForward(const PlaneRun& p) {
  const SpatialDim &h = p.rows, &w = p.columns;
  const float *taps[kMostPlaneTaps], *rows[kMostPlaneTaps];
  // Rows before these are split, and among the best, or nobody's. A row is split while the one before is read: loads that lie
  // across two stores wait for them.
  int64_t split = 0, ready = 0;
  unsigned nan = 0;  // there was one
  for (int64_t o = 0; o < h.out; ++o) {
    const int64_t first = o * h.stride - h.pad_lo;
    if (ready < first) ready = first;
    if (split < ready) split = ready;
    int64_t count = 0;
    for (int64_t t = 0; t < h.window; ++t) {
      const int64_t row = first + t * h.rhs_dilation;
      if (row < 0 || row >= h.in) continue;
      for (; ready <= row; ++ready) {
        for (; split < h.in && split <= ready + 1; ++split)
          nan |= SplitRow<kLanes>(p, split, p.split + (split & 1) * p.row);
        for (int64_t b = 0; b < w.window; ++b) taps[b] = p.split + (ready & 1) * p.row + p.taps[b];
        BestOf<kLanes>(taps, w.window, nan, w.out, true, p.best + (ready & p.best_rows) * p.phase);
      }
      rows[count++] = p.best + (row & p.best_rows) * p.phase;
    }
    ToRow(p, p.y, o, w.out, [&](auto* y) __attribute__((always_inline)) {
      if (count == 0) rows[count++] = p.nothing;
      BestOf<kLanes>(rows, count, nan, w.out, false, y);
    });
  }
}

// --- backward

// Which tap of each window of one row of outputs is the first largest. Padding is never chosen. kWindow: of columns; 0: any.
// `nan`: there may be one.
template <int kLanes, int kWindow>
[[gnu::always_inline]] inline void Choose(const PlaneRun& p, unsigned nan, int64_t o) {
  using F = Floats<kLanes>;
  using I = Ints<kLanes>;
  const SpatialDim &h = p.rows, &w = p.columns;
  const int64_t slot = (o & p.choice_rows) * p.choice + kPlaneMargin, window = kWindow != 0 ? kWindow : w.window;
  int32_t* const chosen = p.chosen + slot;
  float* const given = p.given + slot;
  WithRow(p, p.dy, o, w.out, [&](auto* dy) __attribute__((always_inline)) { return Copy<kLanes>(dy, w.out, given); });
  const float* rows[kMostPlaneTaps];
  int64_t taps[kMostPlaneTaps];
  int64_t count = 0;
  int32_t before = 0;
  for (int64_t b = 0; b < window; ++b) taps[b] = p.taps[b];
  for (int64_t a = 0; a < h.window; ++a) {
    const int64_t row = o * h.stride - h.pad_lo + a;
    if (row < 0) before += static_cast<int32_t>(window);
    if (row >= 0 && row < h.in) rows[count++] = p.split + (row & p.split_rows) * p.row;
  }
  const auto each = [&](auto take) __attribute__((always_inline)) {  // in order
    if constexpr (kWindow != 0) {
      if (count == kWindow) {
        return Unroll<kWindow * kWindow>([&]<int t>()
                                             __attribute__((always_inline)) { take(t / kWindow, t % kWindow); });
      }
    }
    for (int64_t a = 0; a < count; ++a) {
      for (int64_t b = 0; b < window; ++b) take(a, b);
    }
  };
  for (int64_t j = 0; j < w.out; j += kLanes) {
    I which;
    if (nan == 0) {
      // The first of equal elements of -inf, beside which padding lies, is chosen from the start.
      F best = F{} - std::numeric_limits<float>::infinity();
      which = Load<I>(p.first + j) + before;
      each([&](int64_t a, int64_t b) __attribute__((always_inline)) {
        const F x = Load<F>(rows[a] + taps[b] + j);
        const I better = x > best;
        which = better ? I{} + (before + static_cast<int32_t>(a * window + b)) : which;
        best = Larger(x, best);
      });
    } else if (!p.nan_gives_way) {
      F best = F{} - std::numeric_limits<float>::infinity();
      which = Load<I>(p.first + j) + before;
      each([&](int64_t a, int64_t b) __attribute__((always_inline)) {
        const F x = Load<F>(rows[a] + taps[b] + j);
        const I keep = (best >= x) | (best != best);
        which = keep ? which : I{} + (before + static_cast<int32_t>(a * window + b));
        best = keep ? best : x;
      });
    } else {  // a NaN that was chosen gives way to the next element, as >= says
      F best = F{} + std::numeric_limits<float>::quiet_NaN();
      which = I{} - 1;
      each([&](int64_t a, int64_t b) __attribute__((always_inline)) {
        const I padding = Load<I>(p.padding + taps[b] + j);
        const F x = padding ? best : Load<F>(rows[a] + taps[b] + j);
        const I tap = padding ? which : I{} + (before + static_cast<int32_t>(a * window + b));
        const I keep = best >= x;
        best = keep ? best : x;
        which = keep ? which : tap;
      });
    }
    Store(chosen + j, which);
  }
  Store(chosen + w.out, I{} - 1);
}

// The rows of outputs that see one row of the image, in their order, and with which of their taps.
struct Seen {
  const int32_t* chosen[kMostPlaneTaps];
  const float* given[kMostPlaneTaps];
  int32_t tap[kMostPlaneTaps];  // the first of the row
  int64_t count = 0;
};

// Adds up the cotangents that elements of one phase got from the windows that chose them, in their order. kRows: those
// that are seen; 0: any.
template <int kLanes, int kWindow, int kStride, int kRows>
[[gnu::always_inline]] inline Floats<kLanes> Given(const PlaneRun& p, const Seen& seen, int64_t phase, int64_t q) {
  using F = Floats<kLanes>;
  using I = Ints<kLanes>;
  const int64_t window = kWindow != 0 ? kWindow : p.columns.window, stride = kStride != 0 ? kStride : p.columns.stride;
  if (phase >= window || (kRows == 0 && seen.count == 0)) return F{};
  F sum = F{} + p.start;
  const auto one = [&](int64_t i, int64_t k) __attribute__((always_inline)) {
    const I keep = Load<I>(seen.chosen[i] + q - k) == (I{} + (seen.tap[i] + static_cast<int32_t>(phase + k * stride)));
    sum += keep ? Load<F>(seen.given[i] + q - k) : F{};
  };
  const int64_t most = (window - 1 - phase) / stride;
  if constexpr (kRows != 0) {
    constexpr int kTaps = (kWindow + kStride - 1) / kStride;  // of the phase that has most
    Unroll<kRows * kTaps>([&]<int t>() __attribute__((always_inline)) {
      if (most - t % kTaps >= 0) one(t / kTaps, most - t % kTaps);
    });
  } else {
    for (int64_t i = 0; i < seen.count; ++i) {
      for (int64_t k = most; k >= 0; --k) one(i, k);
    }
  }
  return sum;
}

template <int kLanes>
[[gnu::always_inline]] inline void StorePairs(Floats<kLanes> even, Floats<kLanes> odd, float* x) {
  constexpr std::make_integer_sequence<int, kLanes> kAll;
  Store(x, Pairs<kLanes>::template Zip<0>(even, odd, kAll));
  Store(x + kLanes, Pairs<kLanes>::template Zip<kLanes / 2>(even, odd, kAll));
}
template <int kLanes>
[[gnu::always_inline]] inline void StorePairs(Floats<kLanes> even, Floats<kLanes> odd, uint16_t* x) {
  const auto low = RoundedBits(Load<Words<kLanes>>(&even)), high = RoundedBits(Load<Words<kLanes>>(&odd));
  Store(x, low >> 16 | (high & 0xFFFF0000u));
}

// One row of dx.
template <int kLanes, int kWindow, int kStride, int kRows>
[[gnu::always_inline]] inline void GatherRow(const PlaneRun& p, const Seen& seen, int64_t row) {
  const SpatialDim& w = p.columns;
  // fn(i, at) writes kWide elements from the i-th on.
  const auto fill = [&]<int kWide>(auto* to, auto fn) __attribute__((always_inline)) {
    int64_t i = 0;
    for (; i + kWide <= w.in; i += kWide) fn(i, to + i);
    if (i == w.in) return;
    std::remove_pointer_t<decltype(to)> rest[kWide];
    fn(i, rest);
    std::memcpy(to + i, rest, (w.in - i) * sizeof(rest[0]));
  };
  ToRow(p, p.dx, row, w.in, [&](auto* x) __attribute__((always_inline)) {
    if constexpr (kStride == 1) {
      fill.template operator()<kLanes>(x, [&](int64_t i, auto* to) __attribute__((always_inline)) {
        StoreFloats<kLanes>(to, Given<kLanes, kWindow, 1, kRows>(p, seen, 0, i + w.pad_lo));
      });
    } else if constexpr (kStride == 2) {
      const auto pairs = [&]<int kOdd>() __attribute__((always_inline)) {
        fill.template operator()<2 * kLanes>(x, [&](int64_t i, auto* to) __attribute__((always_inline)) {
          const int64_t q = (i + w.pad_lo) / 2;
          StorePairs<kLanes>(Given<kLanes, kWindow, 2, kRows>(p, seen, kOdd, q),
                             Given<kLanes, kWindow, 2, kRows>(p, seen, 1 - kOdd, q + kOdd), to);
        });
      };
      w.pad_lo % 2 != 0 ? pairs.template operator()<1>() : pairs.template operator()<0>();
    } else {
      for (int64_t phase = 0; phase < w.stride; ++phase) {
        const int64_t before = w.pad_lo - phase;  // of the phase's first column, the first ones of which are padding
        for (int64_t q = 0; q * w.stride < w.in + before; q += kLanes) {
          std::remove_pointer_t<decltype(x)> value[kLanes];
          StoreFloats<kLanes>(value, Given<kLanes, kWindow, 0, kRows>(p, seen, phase, q));
          for (int64_t k = 0; k < kLanes; ++k) {
            const int64_t i = (q + k) * w.stride - before;
            if (i >= 0 && i < w.in) x[i] = value[k];
          }
        }
      }
    }
  });
}
template <int kLanes, int kWindow, int kStride>
[[gnu::always_inline]] inline void Gather(const PlaneRun& p, int64_t row) {
  const SpatialDim &h = p.rows, &w = p.columns;
  Seen seen;
  const int64_t last = (row + h.pad_lo) / h.stride;
  for (int64_t o = last - p.choice_before; o <= last; ++o) {
    const int64_t a = row + h.pad_lo - o * h.stride;
    if (o < 0 || o >= h.out || a >= h.window) continue;
    const int64_t at = (o & p.choice_rows) * p.choice + kPlaneMargin;
    seen.chosen[seen.count] = p.chosen + at;
    seen.given[seen.count] = p.given + at;
    seen.tap[seen.count++] = static_cast<int32_t>(a * w.window);
  }
  if constexpr (kWindow != 0) {
    constexpr int kMost = (kWindow + kStride - 1) / kStride;  // rows of square windows
    if (seen.count == kMost) return GatherRow<kLanes, kWindow, kStride, kMost>(p, seen, row);
    if (seen.count == 1) return GatherRow<kLanes, kWindow, kStride, 1>(p, seen, row);
  }
  GatherRow<kLanes, kWindow, kStride, 0>(p, seen, row);
}

template <int kLanes, int kWindow, int kStride>
void Backward(const PlaneRun& p) {
  const SpatialDim& h = p.rows;
  int64_t ready = 0, done = 0;  // rows of the image that are split, of dx that are written
  unsigned nan = 0;             // there was one
  // Written lines are read a step later: loads that lie across two stores wait for them.
  const auto split = [&](int64_t o) __attribute__((always_inline)) {
    const int64_t first = o * h.stride - h.pad_lo;
    if (ready < first) ready = first;
    for (; ready < first + h.window && ready < h.in; ++ready) {
      nan |= SplitRow<kLanes>(p, ready, p.split + (ready & p.split_rows) * p.row);
    }
  };
  split(0);
  for (int64_t o = 0; o <= h.out; ++o) {
    if (o < h.out) {
      split(o + 1);
      Choose<kLanes, kWindow>(p, nan, o);
    }
    const int64_t end = o == h.out ? h.in : o * h.stride - h.pad_lo;
    for (; done < h.in && done < end; ++done) Gather<kLanes, kWindow, kStride>(p, done);
  }
}

template <int kLanes>
void PlaneBackward(const PlaneRun& p) {
  const SpatialDim& w = p.columns;
  if (w.stride == 2 && w.window == 3) return Backward<kLanes, 3, 2>(p);
  if (w.stride == 2 && w.window == 2) return Backward<kLanes, 2, 2>(p);
  if (w.stride == 1 && w.window == 3) return Backward<kLanes, 3, 1>(p);
  if (w.stride == 1) return Backward<kLanes, 0, 1>(p);
  if (w.stride == 2) return Backward<kLanes, 0, 2>(p);
  Backward<kLanes, 0, 0>(p);
}

template <int kLanes>
constexpr PlaneKernels Kernels() {
  return {PlaneForward<kLanes>, PlaneBackward<kLanes>};
}

}  // namespace
}  // namespace weft::cpu
