// The transforms of conv_winograd.h, written once over a vector type and compiled per instruction set. Included by
// conv_winograd_{portable,avx2,avx512}.cc. Every channel is computed by itself, in one order.
#include "src/backends/cpu/kernels/conv/conv_winograd.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"

namespace weft::cpu {
namespace {

// The points' sizes, and what polynomials through them have as coefficients: all exact in f32.
constexpr float kA = 0.625f, kB = 1.5f;
constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
// The factors of the taps' values at the points: the product of a point's distances from the others, inverted.
constexpr float kAt0 = 1 / (kA2 * kB2), kAtA = 1 / (2 * kA2 * (kA2 - kB2)), kAtB = 1 / (2 * kB2 * (kB2 - kA2));

template <typename V>
[[gnu::always_inline]] inline V All(float value) {
  return V{} + value;
}

// Six pixels to six points.
template <typename V>
[[gnu::always_inline]] inline void InputLine(const V d[6], V t[6]) {
  const V a2 = All<V>(kA2), b2 = All<V>(kB2), sum = All<V>(-(kA2 + kB2)), product = All<V>(kA2 * kB2);
  t[0] = Fused(product, d[0], Fused(sum, d[2], d[4]));
  t[5] = Fused(product, d[1], Fused(sum, d[3], d[5]));
  const V even_a = Fused(-b2, d[2], d[4]), odd_a = Fused(-b2, d[1], d[3]) * kA;
  t[1] = even_a + odd_a;
  t[2] = even_a - odd_a;
  const V even_b = Fused(-a2, d[2], d[4]), odd_b = Fused(-a2, d[1], d[3]) * kB;
  t[3] = even_b + odd_b;
  t[4] = even_b - odd_b;
}

// Three taps to six points.
template <typename V>
[[gnu::always_inline]] inline void TapsLine(const V g[3], V t[6]) {
  t[0] = g[0] * kAt0;
  const V even_a = Fused(g[2], All<V>(kA2), g[0]) * kAtA, odd_a = g[1] * (kA * kAtA);
  t[1] = even_a + odd_a;
  t[2] = even_a - odd_a;
  const V even_b = Fused(g[2], All<V>(kB2), g[0]) * kAtB, odd_b = g[1] * (kB * kAtB);
  t[3] = even_b + odd_b;
  t[4] = even_b - odd_b;
  t[5] = g[2];
}

// Six points to four pixels.
template <typename V>
[[gnu::always_inline]] inline void OutputLine(const V m[6], V y[4]) {
  const V even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
  y[0] = m[0] + even_a + even_b;
  y[1] = Fused(odd_b, All<V>(kB), odd_a * kA);
  y[2] = Fused(even_b, All<V>(kB2), even_a * kA2);
  y[3] = Fused(odd_b, All<V>(kB3), Fused(odd_a, All<V>(kA3), m[5]));
}

// Calls f.operator()<V>(channel) for whole vectors and then for single channels.
template <int kBytes, typename F>
[[gnu::always_inline]] inline void ForChannels(int64_t channels, F f) {
  constexpr int64_t kLanes = kBytes / 4;
  using V = typename Lanes<float, kLanes>::V;
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) f.template operator()<V>(c);
  for (; c < channels; ++c) f.template operator()<float>(c);
}

template <int kBytes>
void Input(const float* const* pixels, int64_t channels, float* to, int64_t step) {
  ForChannels<kBytes>(channels, [&]<typename V>(int64_t c) {
    V lines[6][6];  // by column, then point
    Unroll<6>([&]<int x>() {
      V d[6];
      Unroll<6>([&]<int y>() { d[y] = Load<V>(pixels[y * 6 + x] + c); });
      InputLine(d, lines[x]);
    });
    Unroll<6>([&]<int y>() {
      V d[6], t[6];
      Unroll<6>([&]<int x>() { d[x] = lines[x][y]; });
      InputLine(d, t);
      Unroll<6>([&]<int x>() { Store(to + (y * 6 + x) * step + c, t[x]); });
    });
  });
}

template <int kBytes>
void Taps(const float* taps, int64_t tap_step, int64_t count, float* to, int64_t step) {
  ForChannels<kBytes>(count, [&]<typename V>(int64_t i) {
    V lines[3][6];
    Unroll<3>([&]<int x>() {
      V g[3];
      Unroll<3>([&]<int y>() { g[y] = Load<V>(taps + (y * 3 + x) * tap_step + i); });
      TapsLine(g, lines[x]);
    });
    Unroll<6>([&]<int y>() {
      V g[3], t[6];
      Unroll<3>([&]<int x>() { g[x] = lines[x][y]; });
      TapsLine(g, t);
      Unroll<6>([&]<int x>() { Store(to + (y * 6 + x) * step + i, t[x]); });
    });
  });
}

template <int kBytes>
void Output(const float* from, int64_t step, int64_t channels, float* const* pixels) {
  ForChannels<kBytes>(channels, [&]<typename V>(int64_t c) {
    V lines[6][4];
    Unroll<6>([&]<int x>() {
      V m[6];
      Unroll<6>([&]<int y>() { m[y] = Load<V>(from + (y * 6 + x) * step + c); });
      OutputLine(m, lines[x]);
    });
    Unroll<4>([&]<int y>() {
      V m[6], t[4];
      Unroll<6>([&]<int x>() { m[x] = lines[x][y]; });
      OutputLine(m, t);
      Unroll<4>([&]<int x>() { Store(pixels[y * 4 + x] + c, t[x]); });
    });
  });
}

template <int kBytes>
constexpr WinogradKernels Kernels() {
  return {&Input<kBytes>, &Taps<kBytes>, &Output<kBytes>};
}

}  // namespace
}  // namespace weft::cpu
