// Conversions between what is seen and what is held.
#include "src/runtime/held_types.h"

#include <cstdint>
#include <cstring>

#include "src/runtime/host_tensor.h"

namespace weft {
namespace {

// A bfloat16 by its bits.
struct BF16 {
  uint16_t bits;
};

template <typename To, typename From>
To Converted(From x) {
  return static_cast<To>(x);
}
template <>
BF16 Converted<BF16, float>(float x) {
  return {FloatToBF16(x)};
}
template <>
BF16 Converted<BF16, double>(double x) {
  return {DoubleToBF16(x)};
}
template <>
float Converted<float, BF16>(BF16 x) {
  return BF16ToFloat(x.bits);
}
template <>
double Converted<double, BF16>(BF16 x) {
  return BF16ToFloat(x.bits);
}

template <typename From, typename To>
void Loop(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t n = out.size() / sizeof(To);
  for (size_t i = 0; i < n; ++i) {
    From x;
    std::memcpy(&x, in.data() + i * sizeof(From), sizeof(From));
    const To y = Converted<To, From>(x);
    std::memcpy(out.data() + i * sizeof(To), &y, sizeof(To));
  }
}

struct Pair {
  DType seen, held;
  void (*down)(std::span<const std::byte> in, std::span<std::byte> out);
  void (*up)(std::span<const std::byte> in, std::span<std::byte> out);
};

constexpr Pair kPairs[] = {
    {DType::kF32, DType::kBF16, Loop<float, BF16>, Loop<BF16, float>},
    {DType::kF64, DType::kBF16, Loop<double, BF16>, Loop<BF16, double>},
    {DType::kF64, DType::kF32, Loop<double, float>, Loop<float, double>},
    {DType::kI64, DType::kI32, Loop<int64_t, int32_t>, Loop<int32_t, int64_t>},
    {DType::kU64, DType::kU32, Loop<uint64_t, uint32_t>, Loop<uint32_t, uint64_t>},
};

}  // namespace

bool IsHeldAs(DType seen, DType held) {
  for (const Pair& pair : kPairs) {
    if (pair.seen == seen && pair.held == held) return true;
  }
  return false;
}

void ConvertHeld(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  for (const Pair& pair : kPairs) {
    if (pair.seen == from && pair.held == to) return pair.down(in, out);
    if (pair.held == from && pair.seen == to) return pair.up(in, out);
  }
}

}  // namespace weft
