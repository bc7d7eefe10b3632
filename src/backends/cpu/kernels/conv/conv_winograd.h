// Winograd's F(4x4, 3x3): a tile of 4x4 output pixels from 36 products a channel where the definition has 144. Six points, 0, ±5/8,
// ±3/2 and infinity, between which a line of six pixels and one of three taps are polynomials. Bits differ from the definition's, and
// an infinity or NaN of the input reaches all pixels of a tile: only who asks for it gets it. A kernel that holds one is not transformed.
#pragma once

#include <cstdint>

namespace weft::cpu {

inline constexpr int kWinogradTile = 4, kWinogradPatch = 6;  // output and input pixels along a side
inline constexpr int kWinogradPoints = kWinogradPatch * kWinogradPatch;

// The transforms, one set per instruction set. Steps count elements.
struct WinogradKernels {
  // 36 pixels of `channels` to to[point * step + channel].
  void (*input)(const float* const* pixels, int64_t channels, float* to, int64_t step) = nullptr;
  // Nine taps, taps[tap * tap_step + i] for i below `count` (whole vectors), to to[point * step + i].
  void (*taps)(const float* taps, int64_t tap_step, int64_t count, float* to, int64_t step) = nullptr;
  // from[point * step + channel] to `channels` of 16 pixels.
  void (*output)(const float* from, int64_t step, int64_t channels, float* const* pixels) = nullptr;
};
extern const WinogradKernels kWinogradPortable, kWinogradAvx2, kWinogradAvx512;

}  // namespace weft::cpu
