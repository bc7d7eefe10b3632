// The inner loops of attention_rows.h, written once over a vector type and compiled per instruction set. Included by
// attention_rows_{portable,avx2,avx512}.cc; everything is in an anonymous namespace and calls nothing that is not.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "src/backends/cpu/kernels/attention/attention_rows.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"
#include "src/backends/cpu/kernels/tiles/pack.h"

namespace weft::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

template <typename V>
[[gnu::always_inline]] inline V All(float x) {
  return V{} + x;
}

// exp(x) for x <= 0, to 2 ulp: 0 where it would be subnormal. Source: Cephes, expf (Moshier 1989): exp(x) = 2^n exp(r) with
// r = x - n ln 2 in two parts and a polynomial of degree 7.
template <int kLanes>
[[gnu::always_inline]] inline typename Lanes<float, kLanes>::V Exp(typename Lanes<float, kLanes>::V x) {
  using V = typename Lanes<float, kLanes>::V;
  using I = typename Lanes<int32_t, kLanes>::V;
  constexpr float kLowest = -87.33F;                    // 2^-126 is next
  constexpr float kRound = 12582912.0F;                 // 1.5 * 2^23: what is added to it is rounded to an integer
  const V clamped = x < kLowest ? All<V>(kLowest) : x;  // NaN stays
  const V shifted = Fused(clamped, All<V>(1.44269504088896341F), All<V>(kRound));
  const V n = shifted - kRound;
  V r = Fused(n, All<V>(-0.693359375F), clamped);
  r = Fused(n, All<V>(2.12194440e-4F), r);
  V p = All<V>(1.9875691500E-4F);
  p = Fused(p, r, All<V>(1.3981999507E-3F));
  p = Fused(p, r, All<V>(8.3334519073E-3F));
  p = Fused(p, r, All<V>(4.1665795894E-2F));
  p = Fused(p, r, All<V>(1.6666665459E-1F));
  p = Fused(p, r, All<V>(5.0000001201E-1F));
  p = Fused(p, r * r, r) + 1.0F;
  I bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + 0x3F800000;
  V power;
  std::memcpy(&power, &bits, sizeof(power));
  return x < kLowest ? V{} : p * power;
}

// f of all lanes: of a vector's halves, and of the halves of that.
template <int kLanes, typename F>
[[gnu::always_inline]] inline float Folded(typename Lanes<float, kLanes>::V x, F f) {
  if constexpr (kLanes == 1) {
    return x[0];
  } else {
    using Half = typename Lanes<float, kLanes / 2>::V;
    Half halves[2];
    std::memcpy(halves, &x, sizeof(x));
    return Folded<kLanes / 2>(f(halves[0], halves[1]), f);
  }
}
template <int kLanes>
[[gnu::always_inline]] inline float Largest(typename Lanes<float, kLanes>::V x) {
  return Folded<kLanes>(x, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

// Stores as bf16, rounded to nearest even, and returns the stored numbers.
template <int kLanes>
[[gnu::always_inline]] inline auto StoreBF16(uint16_t* at, typename Lanes<float, kLanes>::V x) {
  using U = typename Lanes<uint32_t, kLanes>::V;
  using S = typename Lanes<uint16_t, kLanes>::V;
  U bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const U rounded = x == x ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : U{} + 0x7FC0;
  Store(at, __builtin_convertvector(rounded, S));
  bits = rounded << 16;
  std::memcpy(&x, &bits, sizeof(bits));
  return x;
}
inline float FromBF16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <AttentionMask kMask, int kLanes>
struct MaskRow {
  using V = typename Lanes<float, kLanes>::V;
  MaskRow(const AttentionRows& run, int64_t row) {
    if constexpr (kMask == AttentionMask::kNone) return;
    const auto at = static_cast<size_t>(row * run.mask_stride);
    if constexpr (kMask == AttentionMask::kF32) f32 = static_cast<const float*>(run.mask) + at;
    if constexpr (kMask == AttentionMask::kBF16) bf16 = static_cast<const uint16_t*>(run.mask) + at;
    if constexpr (kMask == AttentionMask::kOne) {
      one = run.mask_bf16 ? FromBF16(static_cast<const uint16_t*>(run.mask)[at])
                          : static_cast<const float*>(run.mask)[at];
    }
  }
  [[gnu::always_inline]] V Scaled(V x, float scale, int64_t c) const {
    if constexpr (kMask == AttentionMask::kNone) return x * scale;
    return Fused(x, All<V>(scale), Added(c));
  }
  [[gnu::always_inline]] V Added(int64_t c) const {
    if constexpr (kMask == AttentionMask::kOne) return All<V>(one);
    if constexpr (kMask == AttentionMask::kF32) return Load<V>(f32 + c);
    if constexpr (kMask == AttentionMask::kBF16) {
      using S = typename Lanes<uint16_t, kLanes>::V;
      using U = typename Lanes<uint32_t, kLanes>::V;
      const U bits = __builtin_convertvector(Load<S>(bf16 + c), U) << 16;
      V added;
      std::memcpy(&added, &bits, sizeof(added));
      return added;
    }
    return V{};
  }
  float Scaled(float x, float scale, int64_t c) const {
    if constexpr (kMask == AttentionMask::kNone) return x * scale;
    if constexpr (kMask == AttentionMask::kOne) return Fused(x, scale, one);
    if constexpr (kMask == AttentionMask::kF32) return Fused(x, scale, f32[c]);
    if constexpr (kMask == AttentionMask::kBF16) return Fused(x, scale, FromBF16(bf16[c]));
  }
  // The mask of `count` columns from c on, copied to where a vector of them may be read.
  MaskRow Copied(int64_t c, int64_t count, uint16_t* to) const {
    MaskRow copied = *this;
    if constexpr (kMask == AttentionMask::kBF16) {
      std::memcpy(to, bf16 + c, static_cast<size_t>(count) * sizeof(*to));
      copied.bf16 = to;
    }
    return copied;
  }
  const float* f32 = nullptr;
  const uint16_t* bf16 = nullptr;
  float one = 0;
};

// Earlier sums and values of row r by a factor, 1 where the maximum is the old one; and the sum of later keys.
template <int kLanes>
[[gnu::always_inline]] inline void AddSum(const AttentionRows& run, int64_t r, typename Lanes<float, kLanes>::V sum,
                                          typename Lanes<float, kLanes>::V factor) {
  using V = typename Lanes<float, kLanes>::V;
  float* const sums = run.sums + r * kAttentionLanes;
  Store(sums, Fused(Load<V>(sums), factor, sum));
  if (factor[0] == 1) return;
  float* const values = run.values + r * run.value_stride;
  for (int64_t c = 0; c < run.value_stride; c += kLanes) Store(values + c, Load<V>(values + c) * factor);
}

template <AttentionMask kMask, int kLanes>
void ExponentialsOf(const AttentionRows& run) {
  using V = typename Lanes<float, kLanes>::V;
  for (int64_t r = 0; r < run.rows; ++r) {
    float* const s = run.scores + r * run.stride;
    uint16_t* const narrow = run.narrow != nullptr ? run.narrow + r * run.stride : nullptr;
    uint16_t* const rest = run.narrow != nullptr ? run.rest + r * run.stride : nullptr;
    int64_t seen = run.seen + r < run.columns ? run.seen + r : run.columns;
    if (seen < 0) seen = 0;
    const int64_t whole = seen / kLanes * kLanes, padded = (seen + kLanes - 1) / kLanes * kLanes;
    const int64_t end = (run.columns + kLanes - 1) / kLanes * kLanes;
    const MaskRow<kMask, kLanes> mask(run, r);
    V top = All<V>(-kInfinity);
    for (int64_t c = 0; c < whole; c += kLanes) {
      const V x = mask.Scaled(Load<V>(s + c), run.scale, c);
      Store(s + c, x);
      top = x > top ? x : top;  // NaN comes back as exp's
    }
    if (whole < padded) {
      for (int64_t c = whole; c < seen; ++c) s[c] = mask.Scaled(s[c], run.scale, c);
      for (int64_t c = seen; c < padded; ++c) s[c] = -kInfinity;
      const V x = Load<V>(s + whole);
      top = x > top ? x : top;
    }
    const float before = run.most[r], largest = Largest<kLanes>(top), most = largest > before ? largest : before;
    run.most[r] = most;
    const float base = most == -kInfinity ? 0 : most;  // no key yet: all are 0
    V sum{};
    for (int64_t c = 0; c < padded; c += kLanes) {
      const V p = Exp<kLanes>(Load<V>(s + c) - base);
      sum += p;
      if (narrow != nullptr) {
        StoreBF16<kLanes>(rest + c, p - StoreBF16<kLanes>(narrow + c, p));
      } else {
        Store(s + c, p);
      }
    }
    if (narrow != nullptr) {
      for (uint16_t* part : {narrow, rest}) {
        std::memset(part + padded, 0, static_cast<size_t>(end - padded) * sizeof(*part));
      }
    } else {
      std::memset(s + padded, 0, static_cast<size_t>(end - padded) * sizeof(*s));
    }
    const bool moved = run.values != nullptr && before != base;
    AddSum<kLanes>(run, r, sum, moved ? Exp<kLanes>(All<V>(before - base)) : All<V>(1));
  }
}

// 2^x for x <= 0, to 2^-18 of it; 0 below 2^-126. The polynomial is that of degree 4 whose largest relative error in [0, 1] is
// the least.
template <int kLanes>
[[gnu::always_inline]] inline typename Lanes<float, kLanes>::V Exp2(typename Lanes<float, kLanes>::V x) {
  using V = typename Lanes<float, kLanes>::V;
  const auto power = [](V f) __attribute__((always_inline)) {
    V p = Fused(All<V>(1.353416755e-2F), f, All<V>(5.201146386e-2F));
    p = Fused(p, f, All<V>(2.414427529e-1F));
    p = Fused(p, f, All<V>(6.930038359e-1F));
    return Fused(p, f, All<V>(1.000002593F));
  };
  constexpr float kLowest = -126;
#ifdef __AVX512DQ__
  if constexpr (kLanes == 16) {
    const V f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // of -inf it is 0
    // Lanes that are 0 are left out: Intel's processors take 70 ns for a vector with a result below the normal numbers.
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, All<V>(kLowest), _CMP_NLT_UQ), power(f), x);
  }
#endif
  constexpr float kRound = 12582912.0F;  // as Exp's
  using I = typename Lanes<int32_t, kLanes>::V;
  const V clamped = x < kLowest ? All<V>(kLowest) : x;
  const V shifted = (clamped - 0.5F) + kRound;
  const V p = power(clamped - (shifted - kRound));
  I bits, more;
  std::memcpy(&bits, &p, sizeof(bits));
  std::memcpy(&more, &shifted, sizeof(more));
  bits += more << 23;
  V result;
  std::memcpy(&result, &bits, sizeof(result));
  return x < kLowest ? V{} : x == x ? result : x;
}

// Stores the high halves of two vectors, one after the other.
template <typename V, size_t... i>
[[gnu::always_inline]] inline void StoreHigh(uint16_t* at, V first, V second, std::index_sequence<i...>) {
  using S = typename Lanes<uint16_t, sizeof...(i)>::V;
  S words[2];
  std::memcpy(&words[0], &first, sizeof(V));
  std::memcpy(&words[1], &second, sizeof(V));
  const S high = __builtin_shufflevector(words[0], words[1], (2 * i + 1)...);
  Store(at, high);
}

template <int kLanes>
[[gnu::always_inline]] inline void StoreHalves(float* at, const typename Lanes<float, kLanes>::V* p) {
  using V = typename Lanes<float, kLanes>::V;
  using U = typename Lanes<uint32_t, kLanes>::V;
  constexpr std::make_index_sequence<2 * kLanes> kAll;
  uint16_t* const to = reinterpret_cast<uint16_t*>(at);
  const auto rest = [](V x) __attribute__((always_inline)) {
    U bits;
    V first;
    std::memcpy(&bits, &x, sizeof(bits));
    bits &= 0xFFFF0000;
    std::memcpy(&first, &bits, sizeof(first));
    return x - first;
  };
  for (int i = 0; i < kHalvesRun / kLanes; i += 2) {
    StoreHigh(to + i * kLanes, p[i], p[i + 1], kAll);
    StoreHigh(to + kHalvesRun + i * kLanes, rest(p[i]), rest(p[i + 1]), kAll);
  }
}

// Calls f with the numbers of the vectors of a run, which are two registers or many.
template <int kVectors, typename F>
[[gnu::always_inline]] inline void ForEachVector(F f) {
  if constexpr (kVectors == 2) {
    f(0);
    f(1);
  } else {
    for (int i = 0; i < kVectors; ++i) f(i);
  }
}

template <AttentionMask kMask, int kLanes>
void HalvesOf(const AttentionRows& run) {
  using V = typename Lanes<float, kLanes>::V;
  using I = typename Lanes<int32_t, kLanes>::V;
  constexpr int kVectors = kHalvesRun / kLanes;
  constexpr float kLog2E = 1.44269504088896341F;
  const V scale = All<V>(run.scale * kLog2E);
  I count;
  for (int i = 0; i < kLanes; ++i) count[i] = i;
  for (int64_t r = 0; r < run.rows; ++r) {
    float* const s = run.scores + r * run.stride;
    int64_t seen = run.seen + r < run.columns ? run.seen + r : run.columns;
    if (seen < 0) seen = 0;
    const int64_t whole = seen / kHalvesRun * kHalvesRun, padded = (seen + kHalvesRun - 1) / kHalvesRun * kHalvesRun;
    const int64_t end = (ColumnsOf(run, r) + kHalvesRun - 1) / kHalvesRun * kHalvesRun;
    const MaskRow<kMask, kLanes> mask(run, r);
    const auto plus = [&](V x, const MaskRow<kMask, kLanes>& added, int64_t c, V y) __attribute__((always_inline)) {
      if constexpr (kMask == AttentionMask::kNone) return Fused(x, scale, y);
      return Fused(x, scale, Fused(added.Added(c), All<V>(kLog2E), y));
    };
    V tops[kVectors], last[kVectors], p[kVectors];  // a vector alone would wait for itself
    ForEachVector<kVectors>([&](int i) __attribute__((always_inline)) { tops[i] = All<V>(-kInfinity); });
    for (int64_t c = 0; c < whole; c += kHalvesRun) {
      ForEachVector<kVectors>([&](int i) __attribute__((always_inline)) {
        const V x = plus(Load<V>(s + c + i * kLanes), mask, c + i * kLanes, V{});
        tops[i] = x > tops[i] ? x : tops[i];  // NaN comes back as exp's
      });
    }
    if (whole < padded) {
      alignas(64) uint16_t ends[kHalvesRun] = {};
      const MaskRow<kMask, kLanes> added = mask.Copied(whole, seen - whole, ends);
      ForEachVector<kVectors>([&](int i) __attribute__((always_inline)) {
        const V x = plus(Load<V>(s + whole + i * kLanes), added, i * kLanes, V{});
        last[i] = count < static_cast<int32_t>(seen - whole - i * kLanes) ? x : All<V>(-kInfinity);
        tops[i] = last[i] > tops[i] ? last[i] : tops[i];
      });
    }
    V top = tops[0];
    for (int i = 1; i < kVectors; ++i) top = tops[i] > top ? tops[i] : top;
    const float before = run.most[r], largest = Largest<kLanes>(top), most = largest > before ? largest : before;
    run.most[r] = most;
    const float base = most == -kInfinity ? 0 : most;  // no key yet: all are 0
    V sum{};
    for (int64_t c = 0; c < whole; c += kHalvesRun) {
      ForEachVector<kVectors>([&](int i) __attribute__((always_inline)) {
        p[i] = Exp2<kLanes>(plus(Load<V>(s + c + i * kLanes), mask, c + i * kLanes, All<V>(-base)));
        sum += p[i];
      });
      StoreHalves<kLanes>(s + c, p);
    }
    if (whole < padded) {
      ForEachVector<kVectors>([&](int i)
                                  __attribute__((always_inline)) { sum += p[i] = Exp2<kLanes>(last[i] - base); });
      StoreHalves<kLanes>(s + whole, p);
    }
    std::memset(s + padded, 0, static_cast<size_t>(end - padded) * sizeof(*s));
    const bool moved = run.values != nullptr && before != base;
    AddSum<kLanes>(run, r, sum, moved ? Exp2<kLanes>(All<V>(before - base)) : All<V>(1));
  }
}

template <int kLanes>
void Exponentials(const AttentionRows& run) {
  switch (run.kind) {
    case AttentionMask::kNone: return ExponentialsOf<AttentionMask::kNone, kLanes>(run);
    case AttentionMask::kOne: return ExponentialsOf<AttentionMask::kOne, kLanes>(run);
    case AttentionMask::kF32: return ExponentialsOf<AttentionMask::kF32, kLanes>(run);
    case AttentionMask::kBF16: return ExponentialsOf<AttentionMask::kBF16, kLanes>(run);
  }
}

// A mask is of bf16, as q is.
template <int kLanes>
void Halves(const AttentionRows& run) {
  switch (run.kind) {
    case AttentionMask::kNone: return HalvesOf<AttentionMask::kNone, kLanes>(run);
    case AttentionMask::kOne: return HalvesOf<AttentionMask::kOne, kLanes>(run);
    default: return HalvesOf<AttentionMask::kBF16, kLanes>(run);
  }
}

template <int kLanes>
void Finish(const AttentionResult& run) {
  using V = typename Lanes<float, kLanes>::V;
  for (int64_t r = 0; r < run.rows; ++r) {
    const float* const values = run.values + r * run.value_stride;
    float sum = 0;
    for (int64_t i = 0; i < kAttentionLanes; ++i) sum += run.sums[r * kAttentionLanes + i];
    if (sum == 0 && !run.nan_if_unseen) sum = kInfinity;  // of values that are 0
    int64_t c = 0;
    if (run.bf16) {
      uint16_t* const out = static_cast<uint16_t*>(run.out) + r * run.out_stride;
      for (; c + kLanes <= run.width; c += kLanes) StoreBF16<kLanes>(out + c, Load<V>(values + c) / sum);
      for (; c < run.width; ++c) out[c] = NarrowBF16(values[c] / sum);
    } else {
      float* const out = static_cast<float*>(run.out) + r * run.out_stride;
      for (; c + kLanes <= run.width; c += kLanes) Store(out + c, Load<V>(values + c) / sum);
      for (; c < run.width; ++c) out[c] = values[c] / sum;
    }
  }
}

template <int kLanes>
void FinishHalves(const AttentionResult& run) {
  using V = typename Lanes<float, kLanes>::V;
  using U = typename Lanes<uint32_t, kLanes>::V;
  constexpr int64_t kStep = 2 * kLanes;
  for (int64_t r = 0; r < run.rows; ++r) {
    const float* const values = run.values + r * run.value_stride;
    const float sum = Folded<kLanes>(Load<V>(run.sums + r * kAttentionLanes),
                                     [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
    const V inverse = All<V>(sum == 0 && !run.nan_if_unseen ? 0 : 1 / sum);  // 0: of values that are 0
    const auto rounded = [&](int64_t c) __attribute__((always_inline)) {
      V x = c < run.value_stride ? Load<V>(values + c) * inverse : V{};
      U bits;
      std::memcpy(&bits, &x, sizeof(bits));
      bits = RoundedBits(bits);
      std::memcpy(&x, &bits, sizeof(x));
      return x;
    };
    uint16_t* const out = static_cast<uint16_t*>(run.out) + r * run.out_stride;
    for (int64_t c = 0; c < run.width; c += kStep) {
      alignas(64) uint16_t end[kStep];
      uint16_t* const to = c + kStep <= run.width ? out + c : end;
      StoreHigh(to, rounded(c), rounded(c + kLanes), std::make_index_sequence<kStep>());
      if (to == end) std::memcpy(out + c, end, static_cast<size_t>(run.width - c) * sizeof(*out));
    }
  }
}

template <int kLanes>
void ExpOf(const float* x, float* y, int64_t count) {
  using V = typename Lanes<float, kLanes>::V;
  for (int64_t i = 0; i < count; i += kLanes) Store(y + i, Exp<kLanes>(Load<V>(x + i)));
}

template <int kLanes>
constexpr AttentionKernels Kernels(void (*halves)(const AttentionRows&),
                                   void (*finish_halves)(const AttentionResult&)) {
  return {Exponentials<kLanes>, halves, Finish<kLanes>, finish_halves, ExpOf<kLanes>};
}

}  // namespace
}  // namespace weft::cpu
