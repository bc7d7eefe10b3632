// See reduce.h. Blocks of a fixed size: their loops are vectorised at the baseline instruction set, and a block of the running
// values stays in the first cache while the inputs pass by.
#include "src/distributed/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "src/runtime/host_tensor.h"
#include "src/runtime/narrow.h"

namespace weft::distributed {
namespace {

constexpr int64_t kBlock = 1024;  // elements

// --- Combinations ---------------------------------------------------------------------------------------------

// Integers are added and multiplied as unsigned ones of at least 32 bits, where wrapping is defined.
template <typename T>
using Wide = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;

struct Sum {
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wide<T>>(x) + static_cast<Wide<T>>(y));
    else
      return x + y;
  }
};

struct Product {
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wide<T>>(x) * static_cast<Wide<T>>(y));
    else
      return x * y;
  }
  // Multiplies as StableHLO does, without C's way out for infinities.
  template <typename T>
  std::complex<T> operator()(std::complex<T> x, std::complex<T> y) const {
    return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
  }
};

struct Min {
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>)
      return x < y ? x : y;
    else
      return x != x || y != y ? std::numeric_limits<T>::quiet_NaN() : x < y || (x == y && std::signbit(x)) ? x : y;
  }
};

struct Max {
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>)
      return x < y ? y : x;
    else
      return x != x || y != y ? std::numeric_limits<T>::quiet_NaN() : x > y || (x == y && !std::signbit(x)) ? x : y;
  }
};

struct And {
  template <typename T>
  T operator()(T x, T y) const {
    return static_cast<T>(x & y);
  }
};

struct Or {
  template <typename T>
  T operator()(T x, T y) const {
    return static_cast<T>(x | y);
  }
};

// --- How elements lie in memory -------------------------------------------------------------------------------

template <typename T>
struct Plain {
  using Stored = T;
  using Number = T;
  static Number Read(Stored x) { return x; }
  static Stored Write(Number x) { return x; }
};

struct BF16 {
  using Stored = uint16_t;
  using Number = float;
  static Number Read(Stored x) { return BF16ToFloat(x); }
  static Stored Write(Number x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40;
    return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
  }
};

struct F16 {
  using Stored = uint16_t;
  using Number = float;
  // The exponent is moved by a multiplication, which makes subnormal ones normal, too.
  static Number Read(Stored x) {
    const uint32_t magnitude = (x & 0x7FFFu) << 13;
    const uint32_t moved = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    const uint32_t special = magnitude | 0x7F800000u;
    return std::bit_cast<float>((magnitude >= 0x0F800000u ? special : moved) | (x & 0x8000u) << 16);
  }
  // Below 2^-14 the addition of 2^-1 rounds to units of 2^-24; above, the bits are rounded as those of an integer.
  static Stored Write(Number x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7FFFFFFFu;
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1)) >> 13;
    const uint32_t finite = magnitude < 0x38800000u ? small : normal;
    const uint32_t special = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
    return static_cast<uint16_t>((magnitude >= 0x477FF000u ? special : finite) | (bits >> 16 & 0x8000u));
  }
};

template <DType kType>
struct F8 {
  using Stored = uint8_t;
  using Number = float;
  static Number Read(Stored x) { return F8ToFloat(kType, x); }
  static Stored Write(Number x) { return FloatToF8(kType, x); }
};

// i2, i4, u2, u4: a byte each, with the sign extended.
template <DType kType>
struct SubByte {
  using Stored = std::conditional_t<IsSigned(kType), int8_t, uint8_t>;
  using Number = std::conditional_t<IsSigned(kType), int32_t, uint32_t>;
  static Number Read(Stored x) { return x; }
  static Stored Write(Number x) { return static_cast<Stored>(Wrapped(kType, static_cast<uint64_t>(x))); }
};

// --- The loops ------------------------------------------------------------------------------------------------

// `n` elements from `start` on. Inlined with the constant kBlock, so that the compiler knows the trip count.
template <typename Element, typename Combine>
[[gnu::always_inline]] inline void ReduceBlock(std::span<const void* const> inputs, void* output, int64_t start,
                                               int64_t n) {
  using Stored = typename Element::Stored;
  using Number = typename Element::Number;
  alignas(64) Number running[kBlock];
  const auto* first = static_cast<const Stored*>(inputs[0]) + start;
  for (int64_t i = 0; i < n; ++i) running[i] = Element::Read(first[i]);
  for (const void* input : inputs.subspan(1)) {
    const auto* next = static_cast<const Stored*>(input) + start;
    for (int64_t i = 0; i < n; ++i) running[i] = Combine()(running[i], Element::Read(next[i]));
  }
  auto* to = static_cast<Stored*>(output) + start;
  for (int64_t i = 0; i < n; ++i) to[i] = Element::Write(running[i]);
}

template <typename Element, typename Combine>
void ReduceAll(std::span<const void* const> inputs, void* output, int64_t count) {
  int64_t start = 0;
  for (; start + kBlock <= count; start += kBlock) ReduceBlock<Element, Combine>(inputs, output, start, kBlock);
  if (start < count) ReduceBlock<Element, Combine>(inputs, output, start, count - start);
}

using Loop = void (*)(std::span<const void* const>, void*, int64_t);

template <typename Element>
Loop LoopOf(Reduction reduction) {
  using Number = typename Element::Number;
  constexpr bool kOrdered = std::is_arithmetic_v<Number>;
  switch (reduction) {
    case Reduction::kSum: return &ReduceAll<Element, Sum>;
    case Reduction::kProduct: return &ReduceAll<Element, Product>;
    case Reduction::kMin:
      if constexpr (kOrdered) return &ReduceAll<Element, Min>;
      break;
    case Reduction::kMax:
      if constexpr (kOrdered) return &ReduceAll<Element, Max>;
      break;
    case Reduction::kAnd:
      if constexpr (std::is_integral_v<Number>) return &ReduceAll<Element, And>;
      break;
    case Reduction::kOr:
      if constexpr (std::is_integral_v<Number>) return &ReduceAll<Element, Or>;
      break;
  }
  return nullptr;
}

// For bool all reductions are one of two.
Loop LoopOfBool(Reduction reduction) {
  const bool is_or = reduction == Reduction::kSum || reduction == Reduction::kMax || reduction == Reduction::kOr;
  return is_or ? &ReduceAll<Plain<uint8_t>, Or> : &ReduceAll<Plain<uint8_t>, And>;
}

Loop LoopOf(DType dtype, Reduction reduction) {
  switch (dtype) {
    case DType::kInvalid: return nullptr;
    case DType::kBool: return LoopOfBool(reduction);
    case DType::kI2: return LoopOf<SubByte<DType::kI2>>(reduction);
    case DType::kI4: return LoopOf<SubByte<DType::kI4>>(reduction);
    case DType::kU2: return LoopOf<SubByte<DType::kU2>>(reduction);
    case DType::kU4: return LoopOf<SubByte<DType::kU4>>(reduction);
    case DType::kI8: return LoopOf<Plain<int8_t>>(reduction);
    case DType::kI16: return LoopOf<Plain<int16_t>>(reduction);
    case DType::kI32: return LoopOf<Plain<int32_t>>(reduction);
    case DType::kI64: return LoopOf<Plain<int64_t>>(reduction);
    case DType::kU8: return LoopOf<Plain<uint8_t>>(reduction);
    case DType::kU16: return LoopOf<Plain<uint16_t>>(reduction);
    case DType::kU32: return LoopOf<Plain<uint32_t>>(reduction);
    case DType::kU64: return LoopOf<Plain<uint64_t>>(reduction);
    case DType::kF16: return LoopOf<F16>(reduction);
    case DType::kBF16: return LoopOf<BF16>(reduction);
    case DType::kF32: return LoopOf<Plain<float>>(reduction);
    case DType::kF64: return LoopOf<Plain<double>>(reduction);
    case DType::kC64: return LoopOf<Plain<std::complex<float>>>(reduction);
    case DType::kC128: return LoopOf<Plain<std::complex<double>>>(reduction);
    case DType::kF8E3M4: return LoopOf<F8<DType::kF8E3M4>>(reduction);
    case DType::kF8E4M3: return LoopOf<F8<DType::kF8E4M3>>(reduction);
    case DType::kF8E4M3B11FNUZ: return LoopOf<F8<DType::kF8E4M3B11FNUZ>>(reduction);
    case DType::kF8E4M3FN: return LoopOf<F8<DType::kF8E4M3FN>>(reduction);
    case DType::kF8E4M3FNUZ: return LoopOf<F8<DType::kF8E4M3FNUZ>>(reduction);
    case DType::kF8E5M2: return LoopOf<F8<DType::kF8E5M2>>(reduction);
    case DType::kF8E5M2FNUZ: return LoopOf<F8<DType::kF8E5M2FNUZ>>(reduction);
    case DType::kF8E8M0FNU: return LoopOf<F8<DType::kF8E8M0FNU>>(reduction);
  }
  return nullptr;
}

}  // namespace

bool HasReduction(DType dtype, Reduction reduction) { return LoopOf(dtype, reduction) != nullptr; }

void Reduce(DType dtype, Reduction reduction, std::span<const void* const> inputs, void* output, int64_t count) {
  LoopOf(dtype, reduction)(inputs, output, count);
}

}  // namespace weft::distributed
