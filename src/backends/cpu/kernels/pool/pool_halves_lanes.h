// The loop of pool_halves.h, compiled per instruction set; everything is in an anonymous namespace.
#include <cstdint>

#include "src/backends/cpu/kernels/pool/pool_halves.h"
#include "src/backends/cpu/kernels/tiles/halves_vectors.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"

namespace weft::cpu {
namespace {

#ifdef __AVX512F__
// The best of vectors side by side, whose comparisons wait for each other. NaN wins.
template <int kVectors, bool kMax>
void PoolBest(const HalvesWindow& w, int64_t c) {
  const bool bf16 = w.dtype == DType::kBF16;
  Wides best[kVectors];
  for (int64_t t = 0; t < w.taps; ++t) {
    const uint16_t* const from = w.x + w.offsets[t] + c;
    Unroll<kVectors>([&]<int v>() __attribute__((always_inline)) {
      const Wides x = WidenVector(bf16, Load<Halves>(from + v * kHalves));
      if (t == 0) {
        best[v] = x;
        return;
      }
      const __mmask16 worse = _mm512_cmp_ps_mask(best[v], x, kMax ? _CMP_NGE_UQ : _CMP_NLE_UQ);
      best[v] = _mm512_mask_mov_ps(best[v], _mm512_mask_cmp_ps_mask(worse, best[v], best[v], _CMP_ORD_Q), x);
    });
  }
  Unroll<kVectors>([&]<int v>()
                       __attribute__((always_inline)) { Store(w.y + c + v * kHalves, NarrowVector(bf16, best[v])); });
}
template <bool kMax>
int64_t PoolBest(const HalvesWindow& w) {
  int64_t c = 0;
  for (; c + 4 * kHalves <= w.channels; c += 4 * kHalves) PoolBest<4, kMax>(w, c);
  for (; c + kHalves <= w.channels; c += kHalves) PoolBest<1, kMax>(w, c);
  return c;
}
#endif
int64_t PoolHalves(const HalvesWindow& w) {
#ifdef __AVX512F__
  if (w.kind == PoolKind::kMax) return PoolBest<true>(w);
  if (w.kind == PoolKind::kMin) return PoolBest<false>(w);
#endif
  const bool bf16 = w.dtype == DType::kBF16;
  using Words = typename Lanes<int32_t, kHalves>::V;
  int64_t c = 0;
  for (; c + kHalves <= w.channels; c += kHalves) {
    const auto tap = [&](int64_t t) { return WidenVector(bf16, Load<Halves>(w.x + w.offsets[t] + c)); };
    Wides best = tap(0);
    for (int64_t t = 1; t < w.taps; ++t) {
      const Wides x = tap(t);
      if (w.kind == PoolKind::kSum) {
        best += x;
      } else {  // NaN wins
        const Words keep = (w.kind == PoolKind::kMax ? best >= x : best <= x) | (best != best);
        best = keep ? best : x;
      }
    }
    if (w.kind == PoolKind::kSum) best *= w.scale;
    Store(w.y + c, NarrowVector(bf16, best));
  }
  return c;
}

}  // namespace
}  // namespace weft::cpu
