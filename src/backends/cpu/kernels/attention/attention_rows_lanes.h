// The inner loops of attention_rows.h, written once over a vector type and compiled per instruction set. Included by
// attention_rows_{portable,avx2,avx512}.cc; everything is in an anonymous namespace and calls nothing that is not.
#pragma once

#include <cstdint>
#include <cstring>

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

template <int kLanes>
[[gnu::always_inline]] inline float Largest(typename Lanes<float, kLanes>::V x) {
  if constexpr (kLanes == 1) {
    return x[0];
  } else {
    using Half = typename Lanes<float, kLanes / 2>::V;
    Half halves[2];
    std::memcpy(halves, &x, sizeof(x));
    return Largest<kLanes / 2>(halves[0] > halves[1] ? halves[0] : halves[1]);
  }
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
    if constexpr (kMask == AttentionMask::kOne) return Fused(x, All<V>(scale), All<V>(one));
    if constexpr (kMask == AttentionMask::kF32) return Fused(x, All<V>(scale), Load<V>(f32 + c));
    if constexpr (kMask == AttentionMask::kBF16) {
      using S = typename Lanes<uint16_t, kLanes>::V;
      using U = typename Lanes<uint32_t, kLanes>::V;
      const U bits = __builtin_convertvector(Load<S>(bf16 + c), U) << 16;
      V added;
      std::memcpy(&added, &bits, sizeof(added));
      return Fused(x, All<V>(scale), added);
    }
  }
  float Scaled(float x, float scale, int64_t c) const {
    if constexpr (kMask == AttentionMask::kNone) return x * scale;
    if constexpr (kMask == AttentionMask::kOne) return Fused(x, scale, one);
    if constexpr (kMask == AttentionMask::kF32) return Fused(x, scale, f32[c]);
    if constexpr (kMask == AttentionMask::kBF16) return Fused(x, scale, FromBF16(bf16[c]));
  }
  const float* f32 = nullptr;
  const uint16_t* bf16 = nullptr;
  float one = 0;
};

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
    float* const sums = run.sums + r * kAttentionLanes;
    if (run.values == nullptr || before == base) {
      Store(sums, Load<V>(sums) + sum);
      continue;
    }
    const V factor = Exp<kLanes>(All<V>(before - base));
    Store(sums, Fused(Load<V>(sums), factor, sum));
    float* const values = run.values + r * run.value_stride;
    for (int64_t c = 0; c < run.value_stride; c += kLanes) Store(values + c, Load<V>(values + c) * factor);
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
void ExpOf(const float* x, float* y, int64_t count) {
  using V = typename Lanes<float, kLanes>::V;
  for (int64_t i = 0; i < count; i += kLanes) Store(y + i, Exp<kLanes>(Load<V>(x + i)));
}

template <int kLanes>
constexpr AttentionKernels Kernels() {
  return {Exponentials<kLanes>, Finish<kLanes>, ExpOf<kLanes>};
}

}  // namespace
}  // namespace weft::cpu
