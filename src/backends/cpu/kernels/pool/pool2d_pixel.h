// One output pixel of pooling over f32 channels, written once over a vector type and compiled per instruction set.
// Included by pool2d_portable.cc and pool2d_avx512.cc inside anonymous namespaces only.
#include <cstdint>
#include <cstring>

#include "src/backends/cpu/kernels/pool/pool2d.h"

namespace weft::cpu {
namespace {

template <int kLanes>
struct Lanes {
  typedef float F __attribute__((vector_size(kLanes * 4)));
  typedef int32_t I __attribute__((vector_size(kLanes * 4)));
  static F Load(const float* at) {
    F value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  static void Store(float* at, F value) { std::memcpy(at, &value, sizeof(value)); }
};

// NaN wins, as IEEE's maximum and minimum say.
template <typename L>
inline typename L::F Better(PoolKind kind, typename L::F best, typename L::F x) {
  const typename L::I keep = (kind == PoolKind::kMax ? best >= x : best <= x) | (best != best);
  return keep ? best : x;
}

template <typename L>
inline void ForwardLanes(const PoolPixel& p, int64_t c) {
  using F = typename L::F;
  F best = L::Load(p.x + p.offsets[0] + c);
  if (p.kind == PoolKind::kSum) {
    for (int64_t t = 1; t < p.taps; ++t) best += L::Load(p.x + p.offsets[t] + c);
    best *= p.scale;
  } else {
    for (int64_t t = 1; t < p.taps; ++t) best = Better<L>(p.kind, best, L::Load(p.x + p.offsets[t] + c));
  }
  L::Store(p.y + c, best);
}

// The first of the best gets dy.
template <typename L>
inline void BackwardLanes(const PoolPixel& p, int64_t c) {
  using F = typename L::F;
  using I = typename L::I;
  const F dy = L::Load(p.dy + c);
  F best = L::Load(p.x + p.offsets[0] + c);
  I which = I{};
  const I nan_stays = I{} - static_cast<int32_t>(!p.nan_gives_way);
  for (int64_t t = 1; t < p.taps; ++t) {
    const F x = L::Load(p.x + p.offsets[t] + c);
    const I keep = (p.kind == PoolKind::kMax ? best >= x : best <= x) | ((best != best) & nan_stays);
    best = keep ? best : x;
    which = keep ? which : (I{} + static_cast<int32_t>(t));
  }
  for (int64_t t = 0; t < p.taps; ++t) {
    float* dx = p.dx + p.offsets[t] + c;
    const F share = (which == static_cast<int32_t>(t)) ? dy : F{};
    L::Store(dx, p.overwrite ? share : L::Load(dx) + share);
  }
}

template <int kLanes>
inline void Forward(const PoolPixel& p) {
  int64_t c = 0;
  for (; c + kLanes <= p.channels; c += kLanes) ForwardLanes<Lanes<kLanes>>(p, c);
  for (; c + 4 <= p.channels; c += 4) ForwardLanes<Lanes<4>>(p, c);
  for (; c < p.channels; ++c) ForwardLanes<Lanes<1>>(p, c);
}

template <int kLanes>
inline void Backward(const PoolPixel& p) {
  int64_t c = 0;
  for (; c + kLanes <= p.channels; c += kLanes) BackwardLanes<Lanes<kLanes>>(p, c);
  for (; c + 4 <= p.channels; c += 4) BackwardLanes<Lanes<4>>(p, c);
  for (; c < p.channels; ++c) BackwardLanes<Lanes<1>>(p, c);
}

}  // namespace
}  // namespace weft::cpu
