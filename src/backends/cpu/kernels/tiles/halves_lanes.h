// The loops of halves.h, compiled per instruction set by halves_{portable,avx2,avx512}.cc; everything is in an anonymous namespace.
#include <cstdint>
#include <cstring>

#include "src/backends/cpu/kernels/tiles/halves.h"
#include "src/backends/cpu/kernels/tiles/halves_vectors.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"
#include "src/backends/cpu/kernels/tiles/pack.h"

namespace weft::cpu {
namespace {

#ifdef __AVX2__
void WidenHalves(DType from, const uint16_t* in, int64_t count, float* out) {
  const bool bf16 = from == DType::kBF16;
  int64_t i = 0;
  for (; i + kHalves <= count; i += kHalves) Store(out + i, WidenVector(bf16, Load<Halves>(in + i)));
  if (i == count) return;
  uint16_t rest[kHalves] = {};
  float wide[kHalves];
  std::memcpy(rest, in + i, (count - i) * sizeof(uint16_t));
  Store(wide, WidenVector(bf16, Load<Halves>(rest)));
  std::memcpy(out + i, wide, (count - i) * sizeof(float));
}
void NarrowHalves(DType to, const float* in, int64_t count, uint16_t* out) {
  const bool bf16 = to == DType::kBF16;
  int64_t i = 0;
  for (; i + kHalves <= count; i += kHalves) Store(out + i, NarrowVector(bf16, Load<Wides>(in + i)));
  if (i == count) return;
  float rest[kHalves] = {};
  uint16_t narrow[kHalves];
  std::memcpy(rest, in + i, (count - i) * sizeof(float));
  Store(narrow, NarrowVector(bf16, Load<Wides>(rest)));
  std::memcpy(out + i, narrow, (count - i) * sizeof(uint16_t));
}
#else
void WidenHalves(DType from, const uint16_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = from == DType::kBF16 ? WidenBF16(in[i]) : WidenF16(in[i]);
}
void NarrowHalves(DType to, const float* in, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to == DType::kBF16 ? NarrowBF16(in[i]) : NarrowF16(in[i]);
}
#endif

}  // namespace
}  // namespace weft::cpu
