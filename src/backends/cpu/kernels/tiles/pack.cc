// Packing: straight copies where lanes are contiguous, register transpositions where K is, scalar otherwise.
#include "src/backends/cpu/kernels/tiles/pack.h"

#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/tiles/halves.h"

namespace weft::cpu {
namespace {

template <typename T>
struct Copy {
  using Source = T;
  using Packed = T;
  static T Get(T value) { return value; }
};
struct FromBF16 {
  using Source = uint16_t;
  using Packed = float;
  static float Get(uint16_t value) { return WidenBF16(value); }
};
struct FromF16 {
  using Source = uint16_t;
  using Packed = float;
  static float Get(uint16_t value) { return WidenF16(value); }
};

// 32-bit words whose K is contiguous: blocks of 16 x 16 through registers, the rest one by one.
void TransposeWords(const CpuTarget& target, const uint32_t* source, int64_t lane_stride, int64_t k, int64_t lanes,
                    int64_t width, uint32_t* out) {
  const bool fast = target.isa == Isa::kAvx512;
  for (int64_t lane0 = 0; lane0 < lanes; lane0 += 16) {
    const int64_t block = std::min<int64_t>(16, lanes - lane0);
    int64_t step = 0;
    if (fast && block == 16) {
      for (; step + 16 <= k; step += 16) {
        Transpose16Avx512(source + lane0 * lane_stride + step, lane_stride, out + step * width + lane0, width);
      }
    }
    for (int64_t lane = lane0; lane < lane0 + block; ++lane) {
      for (int64_t s = step; s < k; ++s) out[s * width + lane] = source[lane * lane_stride + s];
    }
  }
}

template <typename T>
void ZeroTail(T* out, int64_t steps, int64_t lanes, int64_t width) {
  if (lanes == width) return;
  for (int64_t s = 0; s < steps; ++s) std::memset(out + s * width + lanes, 0, (width - lanes) * sizeof(T));
}

template <typename Rule>
void PackElements(const CpuTarget& target, const PackSource& source, int64_t k, int64_t lanes, int64_t width,
                  typename Rule::Packed* out) {
  using Source = typename Rule::Source;
  using Packed = typename Rule::Packed;
  const Source* data = static_cast<const Source*>(source.data);
  ZeroTail(out, k, lanes, width);
  if constexpr (std::is_same_v<Rule, Copy<float>> || std::is_same_v<Rule, Copy<double>>) {
    if (source.lane_stride == 1) {
      if (std::is_same_v<Packed, float> && target.isa == Isa::kAvx512) {
        return CopyRowsAvx512(static_cast<const uint32_t*>(source.data), source.step_stride, k, lanes,
                              reinterpret_cast<uint32_t*>(out), width);
      }
      for (int64_t s = 0; s < k; ++s)
        std::memcpy(out + s * width, data + s * source.step_stride, lanes * sizeof(Packed));
      return;
    }
  }
  if constexpr (std::is_same_v<Rule, Copy<float>>) {
    if (source.step_stride == 1) {
      TransposeWords(target, static_cast<const uint32_t*>(source.data), source.lane_stride, k, lanes, width,
                     reinterpret_cast<uint32_t*>(out));
      return;
    }
  }
  if (source.lane_stride == 1) {
    for (int64_t s = 0; s < k; ++s) {
      const Source* row = data + s * source.step_stride;
      for (int64_t lane = 0; lane < lanes; ++lane) out[s * width + lane] = Rule::Get(row[lane]);
    }
    return;
  }
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const Source* column = data + lane * source.lane_stride;
    for (int64_t s = 0; s < k; ++s) out[s * width + lane] = Rule::Get(column[s * source.step_stride]);
  }
}

void PackPairs(const CpuTarget& target, const PackSource& source, int64_t k, int64_t lanes, int64_t width,
               uint32_t* out) {
  const uint16_t* data = static_cast<const uint16_t*>(source.data);
  const int64_t pairs = k / 2;
  const int64_t steps = (k + 1) / 2;
  ZeroTail(out, steps, lanes, width);
  if (source.step_stride == 1 && source.lane_stride % 2 == 0 && reinterpret_cast<uintptr_t>(data) % 4 == 0) {
    TransposeWords(target, static_cast<const uint32_t*>(source.data), source.lane_stride / 2, pairs, lanes, width, out);
  } else {
    for (int64_t p = 0; p < pairs; ++p) {
      const uint16_t* low = data + 2 * p * source.step_stride;
      const uint16_t* high = low + source.step_stride;
      uint32_t* row = out + p * width;
      if (source.lane_stride == 1 && target.isa == Isa::kAvx512) {
        const int64_t ahead = std::min(kRowsAhead, 2 * (pairs - 1 - p)) * source.step_stride;
        for (int64_t lane = 0; lane < lanes; lane += 32) {
          __builtin_prefetch(low + ahead + lane);
          __builtin_prefetch(high + ahead + lane);
        }
        PairRowsAvx512(low, high, lanes, row);
        continue;
      }
      int64_t lane = 0;
      if (source.lane_stride == 1) {
        for (; lane + 16 <= lanes; lane += 16) {
          for (int i = 0; i < 16; ++i) row[lane + i] = low[lane + i] | static_cast<uint32_t>(high[lane + i]) << 16;
        }
      }
      for (; lane < lanes; ++lane) {
        row[lane] = low[lane * source.lane_stride] | static_cast<uint32_t>(high[lane * source.lane_stride]) << 16;
      }
    }
  }
  if (steps != pairs) {
    const uint16_t* last = data + (k - 1) * source.step_stride;
    for (int64_t lane = 0; lane < lanes; ++lane) out[pairs * width + lane] = last[lane * source.lane_stride];
  }
}

// Bytes, with their sign or none, as pairs of i16.
template <typename T>
void PackBytePairs(const PackSource& source, int64_t k, int64_t lanes, int64_t width, uint32_t* out) {
  const T* data = static_cast<const T*>(source.data);
  const auto wide = [](T value) { return static_cast<uint32_t>(static_cast<uint16_t>(static_cast<int16_t>(value))); };
  ZeroTail(out, (k + 1) / 2, lanes, width);
  for (int64_t step = 0; step < k; step += 2) {
    const T* low = data + step * source.step_stride;
    const T* high = low + source.step_stride;
    uint32_t* row = out + step / 2 * width;
    if (step + 1 == k) {
      for (int64_t lane = 0; lane < lanes; ++lane) row[lane] = wide(low[lane * source.lane_stride]);
    } else if (source.lane_stride == 1) {
      for (int64_t lane = 0; lane < lanes; ++lane) row[lane] = wide(low[lane]) | wide(high[lane]) << 16;
    } else {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        row[lane] = wide(low[lane * source.lane_stride]) | wide(high[lane * source.lane_stride]) << 16;
      }
    }
  }
}

// Bytes, four K side by side. With their sums (pack.h) as the first row.
template <typename T>
void PackQuads(const PackSource& source, int64_t k, int64_t lanes, int64_t width, bool with_sums, uint32_t* out) {
  const T* data = static_cast<const T*>(source.data);
  const int64_t step_stride = source.step_stride, lane_stride = source.lane_stride;
  ZeroTail(out, (k + 3) / 4 + with_sums, lanes, width);
  uint32_t* const sums = with_sums ? out : nullptr;
  if (with_sums) {
    std::memset(sums, 0, static_cast<size_t>(lanes) * sizeof(uint32_t));
    out += width;
  }
  const auto byte = [](T value) { return static_cast<uint32_t>(static_cast<uint8_t>(value)); };
  for (int64_t step = 0; step < k; step += 4, out += width) {
    const T* const row = data + step * step_stride;
    if (step + 4 > k) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        out[lane] = 0;
        for (int64_t i = 0; i < k - step; ++i) {
          const T value = row[i * step_stride + lane * lane_stride];
          out[lane] |= byte(value) << (8 * i);
          if (with_sums) sums[lane] += static_cast<uint32_t>(static_cast<int32_t>(value));
        }
      }
      break;
    }
    if (lane_stride == 1) {
      const T *b = row + step_stride, *c = b + step_stride, *d = c + step_stride;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        out[lane] = byte(row[lane]) | byte(b[lane]) << 8 | byte(c[lane]) << 16 | byte(d[lane]) << 24;
      }
      if (!with_sums) continue;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        sums[lane] += static_cast<uint32_t>(int32_t{row[lane]} + b[lane] + c[lane] + d[lane]);
      }
      continue;
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      T four[4];
      for (int64_t i = 0; i < 4; ++i) four[i] = row[i * step_stride + lane * lane_stride];
      std::memcpy(out + lane, four, sizeof(four));
      if (with_sums) sums[lane] += static_cast<uint32_t>(int32_t{four[0]} + four[1] + four[2] + four[3]);
    }
  }
  constexpr uint32_t kFactor = std::is_signed_v<T> ? -128u : 128u;
  for (int64_t lane = 0; with_sums && lane < lanes; ++lane) sums[lane] *= kFactor;
}

}  // namespace

void Pack(const CpuTarget& target, PackKind kind, const PackSource& source, int64_t k, int64_t lanes, int64_t width,
          void* destination) {
  switch (kind) {
    case PackKind::kF32:
      return PackElements<Copy<float>>(target, source, k, lanes, width, static_cast<float*>(destination));
    case PackKind::kF64:
      return PackElements<Copy<double>>(target, source, k, lanes, width, static_cast<double*>(destination));
    case PackKind::kPairs: return PackPairs(target, source, k, lanes, width, static_cast<uint32_t*>(destination));
    case PackKind::kWidenBF16:
      return PackElements<FromBF16>(target, source, k, lanes, width, static_cast<float*>(destination));
    case PackKind::kWidenF16:
      return PackElements<FromF16>(target, source, k, lanes, width, static_cast<float*>(destination));
    case PackKind::kPairsI8: return PackBytePairs<int8_t>(source, k, lanes, width, static_cast<uint32_t*>(destination));
    case PackKind::kPairsU8:
      return PackBytePairs<uint8_t>(source, k, lanes, width, static_cast<uint32_t*>(destination));
    case PackKind::kQuads:
      return PackQuads<uint8_t>(source, k, lanes, width, false, static_cast<uint32_t*>(destination));
    case PackKind::kQuadsI8:
      return PackQuads<int8_t>(source, k, lanes, width, true, static_cast<uint32_t*>(destination));
    case PackKind::kQuadsU8:
      return PackQuads<uint8_t>(source, k, lanes, width, true, static_cast<uint32_t*>(destination));
  }
}

uint16_t NarrowBF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float WidenF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  float value;
  uint32_t word;
  if (magnitude >= 0x7C00) {
    word = sign | 0x7F800000u | (magnitude & 0x3FF) << 13;
  } else if (magnitude >= 0x0400) {
    word = sign | ((magnitude << 13) + (112u << 23));
  } else {  // subnormal: magnitude * 2^-24 is exact in f32
    value = static_cast<float>(magnitude) * 0x1p-24f;
    std::memcpy(&word, &value, 4);
    word |= sign;
  }
  std::memcpy(&value, &word, 4);
  return value;
}

uint16_t NarrowF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                       // below 2^-14: add a number whose ulp is 2^-24
    float absolute;
    std::memcpy(&absolute, &magnitude, 4);
    const float shifted = absolute + 0.5f;
    uint32_t word;
    std::memcpy(&word, &shifted, 4);
    return sign | static_cast<uint16_t>(word - 0x3F000000u);
  }
  const uint32_t rounded = magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

void Narrow(DType to, const float* from, int64_t from_stride, void* destination, int64_t to_stride, int64_t rows,
            int64_t cols) {
  // The fastest that this machine has, whatever the target: but for a NaN's payload they give the same bits.
  static const HalvesKernels& kernels = HalvesKernelsOf(BestVectors());
  uint16_t* out = static_cast<uint16_t*>(destination);
  for (int64_t r = 0; r < rows; ++r) kernels.narrow(to, from + r * from_stride, cols, out + r * to_stride);
}

const HalvesKernels& HalvesKernelsOf(Isa vectors) {
  switch (vectors) {
    case Isa::kAvx512: return kHalvesAvx512;
    case Isa::kAvx2: return kHalvesAvx2;
    default: return kHalvesPortable;
  }
}

}  // namespace weft::cpu
