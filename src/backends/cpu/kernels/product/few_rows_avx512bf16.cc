// Products of few rows of bf16 with vdpbf16ps, which multiplies pairs along K; called only where the processor has it. A matrix
// by rows is paired in registers: two rows are interleaved, and no lane is widened.
#include "src/backends/cpu/kernels/product/few_rows_lanes.h"

namespace weft::cpu {
namespace {

using Pairs = FewRows<float, PairBF16>;

constexpr int64_t kGroup = 32;  // columns: a line of memory, and two vectors of sums

// Groups from one to that which is asked for: as many rows as are read at once are more streams than a processor fetches ahead
// by itself.
template <int kGroups>
constexpr int64_t kAhead = kGroups + 3;

// Columns [column, column + columns), which are whole groups unless kMasked.
template <int kRows, int kGroups, bool kMasked>
[[gnu::always_inline]] inline void PairTile(const Pairs& run, int64_t k, int64_t steps, int64_t column,
                                            int64_t columns) {
  const PairBF16* b = static_cast<const PairBF16*>(run.b) + k * run.b_stride + column;
  const PairBF16* const a = run.a + k;
  float* const c = run.c + column;
  const __mmask32 mask = kMasked ? static_cast<__mmask32>((uint64_t{1} << columns) - 1) : ~__mmask32{0};
  const auto load = [&](const PairBF16* at) __attribute__((always_inline)) {
    return kMasked ? _mm512_maskz_loadu_epi16(mask, at) : Load<__m512i>(at);
  };
  // Word 2 i of a result is word i of the first operand, word 2 i + 1 that of the second.
  const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i near = _mm512_or_si512(count, _mm512_slli_epi32(_mm512_add_epi32(count, _mm512_set1_epi32(32)), 16));
  const __m512i far = _mm512_add_epi16(near, _mm512_set1_epi16(16));
  __m512 sums[kRows * kGroups * 2];
  Unroll<kRows * kGroups * 2>([&]<int i>() __attribute__((always_inline)) { sums[i] = __m512{}; });
  const auto step = [&](const auto& pair_of, const auto& second_of) __attribute__((always_inline)) {
    __m512bh w[kGroups * 2];
    Unroll<kGroups>([&]<int g>() __attribute__((always_inline)) {
      __builtin_prefetch(b + (g + kAhead<kGroups>)*kGroup);
      __builtin_prefetch(b + run.b_stride + (g + kAhead<kGroups>)*kGroup);
      const __m512i first = load(b + g * kGroup), second = second_of(b + run.b_stride + g * kGroup);
      w[2 * g] = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(first, near, second));
      w[2 * g + 1] = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(first, far, second));
    });
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair_of(a + r * run.a_stride)));
      Unroll<kGroups * 2>([&]<int v>() __attribute__((always_inline)) {
        sums[r * kGroups * 2 + v] = Fused(x, w[v], sums[r * kGroups * 2 + v]);
      });
    });
  };
  int64_t s = 0;
  for (; s + 2 <= steps; s += 2, b += 2 * run.b_stride) {
    step([&](const PairBF16* at) __attribute__((always_inline)) { return Load<int32_t>(at + s); }, load);
  }
  if (s < steps) {
    step([&](const PairBF16* at) __attribute__((always_inline)) { return int32_t{at[s].bits}; },
         [](const PairBF16*) __attribute__((always_inline)) { return _mm512_setzero_si512(); });
  }
  Unroll<kRows * kGroups * 2>([&]<int i>() __attribute__((always_inline)) {
    constexpr int v = i % (kGroups * 2);
    float* const to = c + (i / (kGroups * 2)) * run.c_stride + v * 16;
    const auto lanes = static_cast<__mmask16>(mask >> (v % 2 * 16));
    const __m512 before = k == 0 ? __m512{} : kMasked ? _mm512_maskz_loadu_ps(lanes, to) : Load<__m512>(to);
    const __m512 sum = k == 0 ? sums[i] : before + sums[i];
    kMasked ? _mm512_mask_storeu_ps(to, lanes, sum) : Store(to, sum);
  });
}

template <int kRows>
void PairRows(const Pairs& run) {
  constexpr int kGroups = kRows > 4 ? 1 : kRows > 2 ? 2 : 4;
  for (int64_t k = 0; k < run.k; k += kSteps<kRows>) {
    const int64_t steps = run.k - k < kSteps<kRows> ? run.k - k : kSteps<kRows>;
    int64_t column = run.begin;
    for (; column + kGroups * kGroup <= run.end; column += kGroups * kGroup) {
      PairTile<kRows, kGroups, false>(run, k, steps, column, kGroup);
    }
    for (; column < run.end; column += kGroup) {
      PairTile<kRows, 1, true>(run, k, steps, column, run.end - column < kGroup ? run.end - column : kGroup);
    }
  }
}

void AcrossPairs(const Pairs& run) {
  switch (run.rows) {
    case 1: return PairRows<1>(run);
    case 2: return PairRows<2>(run);
    case 3: return PairRows<3>(run);
    case 4: return PairRows<4>(run);
    case 5: return PairRows<5>(run);
    case 6: return PairRows<6>(run);
    case 7: return PairRows<7>(run);
    default: return PairRows<8>(run);
  }
}

}  // namespace

constinit const FewRowsKernels::Of<float, PairBF16> kFewRowsPairs = {AcrossPairs, Along<float, 64, PairBF16, PairBF16>};

}  // namespace weft::cpu
