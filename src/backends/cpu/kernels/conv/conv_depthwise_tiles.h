// The loops of conv_depthwise_lanes.h and conv_depthwise_pairs_lanes.h share this: tiles of pixels and the arithmetic
// of epilogues. Included by them alone; everything is in an anonymous namespace.
#pragma once

#include <cstdint>

#include "src/backends/cpu/kernels/conv/conv_depthwise.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"

namespace weft::cpu {
namespace {

// Numbers as wide as T's, and halves as many.
template <typename V, typename T>
using WordsOf = typename Lanes<uint32_t, sizeof(V) / sizeof(T)>::V;

// An Ending's arithmetic on a vector of sums; its bits go to `y`.
template <typename V>
struct EndingVectors {
  [[gnu::always_inline]] EndingVectors(const Ending& ending, int64_t c)
      : EndingVectors(ending, Load<V>(ending.factor + c), Load<V>(ending.summand + c)) {}
  [[gnu::always_inline]] EndingVectors(const Ending& ending, V factors, V summands)
      : factor(factors),
        summand(summands + (ending.least == 0 ? 0.0f : -0.0f)),  // above 0 there is no -0
        least(ending.least - V{}),
        most(ending.most - V{}) {}
  V factor, summand, least, most;
};

template <typename T, bool kNarrow>
[[gnu::always_inline]] inline auto* FirstOf(const ChannelRun<T>& run, int64_t pixel) {
  if constexpr (kNarrow) {
    return run.narrow + pixel * run.y_step;
  } else {
    return run.y + pixel * run.y_step;
  }
}

constexpr int kTile = 8;  // pixels whose sums are in registers

// Calls f.operator()<n>(pixel) for tiles of n pixels. Even cuts: nine are five and four.
template <typename F>
[[gnu::always_inline]] inline void ForEachTile(int64_t pixels, F f) {
  const int64_t tiles = (pixels + kTile - 1) / kTile;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t begin = pixels * i / tiles, end = pixels * (i + 1) / tiles;
    switch (end - begin) {
      case 1: f.template operator()<1>(begin); break;
      case 2: f.template operator()<2>(begin); break;
      case 3: f.template operator()<3>(begin); break;
      case 4: f.template operator()<4>(begin); break;
      case 5: f.template operator()<5>(begin); break;
      case 6: f.template operator()<6>(begin); break;
      case 7: f.template operator()<7>(begin); break;
      default: f.template operator()<kTile>(begin); break;
    }
  }
}

}  // namespace
}  // namespace weft::cpu
