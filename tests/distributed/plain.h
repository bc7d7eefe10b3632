// These functions say what collectives mean, as plain loops over elements. They are the judge of the tests in this
// folder and share nothing with src/distributed but the names.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "src/distributed/collective.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/narrow.h"

namespace weft::distributed::test {

using Bytes = std::vector<std::byte>;

inline std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (uint32_t code = 0; code < 16; ++code) {
    for (uint32_t bits = 1; bits <= 128; ++bits) {
      if (const uint32_t number = 0x10000 | bits << 8 | code; IsKnown(number))
        types.push_back(static_cast<DType>(number));
    }
  }
  return types;
}

// Elements of any bits, so that infinities, NaN, subnormal numbers and the ends of ranges come up; of whole numbers near 0 in
// every other element, so that sums are not all infinite.
inline HostTensor Random(DType dtype, int64_t count, uint64_t seed) {
  std::mt19937_64 bits(seed);
  HostTensor tensor(IsNarrow(dtype) ? StorageOf(dtype) : dtype, {count});
  Bytes bytes(static_cast<size_t>(count * BytesOf(dtype)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(bits());
  if (IsBool(dtype)) {
    for (std::byte& byte : bytes) byte &= std::byte{1};
  } else if (BitsOf(dtype) < 8) {
    Normalize(dtype, bytes);
  }
  std::ranges::copy(bytes, tensor.mutable_bytes().begin());
  if (IsBool(dtype) || IsNarrow(dtype)) return tensor;
  for (int64_t i = 0; i < count; i += 2)
    tensor.SetDouble(i, static_cast<double>(static_cast<int>(bits() % 21)) - 10 + 0.25 * (i % 3));
  return tensor;
}

inline float ReadAsFloat(DType dtype, const std::byte* at) {
  if (BytesOf(dtype) == 1) return F8ToFloat(dtype, static_cast<uint8_t>(*at));
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return dtype == DType::kBF16 ? BF16ToFloat(bits) : static_cast<float>(F16ToDouble(bits));
}

inline void WriteFloat(DType dtype, std::byte* at, float value) {
  if (BytesOf(dtype) == 1) {
    *at = static_cast<std::byte>(FloatToF8(dtype, value));
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? FloatToBF16(value) : DoubleToF16(value);
  std::memcpy(at, &bits, 2);
}

template <typename T>
T CombineFloats(Reduction reduction, T x, T y) {
  switch (reduction) {
    case Reduction::kSum: return x + y;
    case Reduction::kProduct: return x * y;
    case Reduction::kMin:
      if (std::isnan(x) || std::isnan(y)) return NAN;
      if (x == 0 && y == 0) return std::signbit(x) || std::signbit(y) ? T{-0.0} : T{0};
      return y < x ? y : x;
    default:
      if (std::isnan(x) || std::isnan(y)) return NAN;
      if (x == 0 && y == 0) return std::signbit(x) && std::signbit(y) ? T{-0.0} : T{0};
      return y > x ? y : x;
  }
}

// In 128 bits, of which the low ones are kept.
inline __int128 CombineIntegers(Reduction reduction, __int128 x, __int128 y) {
  switch (reduction) {
    case Reduction::kSum: return x + y;
    case Reduction::kProduct:
      return static_cast<__int128>(static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y));
    case Reduction::kMin: return x < y ? x : y;
    case Reduction::kMax: return x > y ? x : y;
    case Reduction::kAnd: return x & y;
    case Reduction::kOr: return x | y;
  }
  return 0;
}

inline __int128 ReadInteger(DType dtype, const std::byte* at) {
  uint64_t bits = 0;
  const int bytes = BytesOf(dtype);
  std::memcpy(&bits, at, static_cast<size_t>(bytes));
  const int wide = 64 - 8 * bytes;
  return IsSigned(dtype) ? static_cast<__int128>(static_cast<int64_t>(bits << wide) >> wide)
                         : static_cast<__int128>(bits);
}

inline void WriteInteger(DType dtype, std::byte* at, __int128 value) {
  const auto bits = static_cast<uint64_t>(static_cast<unsigned __int128>(value));
  std::memcpy(at, &bits, static_cast<size_t>(BytesOf(dtype)));
  if (BitsOf(dtype) < 8) Normalize(dtype, {at, 1});
}

template <typename T>
void CombineInPlace(Reduction reduction, std::byte* at, const std::byte* other) {
  T x, y;
  std::memcpy(&x, at, sizeof x);
  std::memcpy(&y, other, sizeof y);
  x = CombineFloats(reduction, x, y);
  std::memcpy(at, &x, sizeof x);
}

template <typename T>
void CombineComplex(Reduction reduction, std::byte* at, const std::byte* other) {
  T x[2], y[2];
  std::memcpy(x, at, sizeof x);
  std::memcpy(y, other, sizeof y);
  const T sum[] = {x[0] + y[0], x[1] + y[1]}, product[] = {x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]};
  std::memcpy(at, reduction == Reduction::kSum ? sum : product, sizeof sum);
}

// Element i of the reduction over all inputs.
inline void PlainElement(DType dtype, Reduction reduction, const std::vector<const std::byte*>& inputs, int64_t i,
                         std::byte* to) {
  const int64_t each = BytesOf(dtype);
  const auto at = [&](size_t k) { return inputs[k] + i * each; };
  std::memcpy(to, at(0), static_cast<size_t>(each));
  if (IsWidened(dtype) && IsFloat(dtype)) {
    float value = ReadAsFloat(dtype, at(0));
    for (size_t k = 1; k < inputs.size(); ++k) value = CombineFloats(reduction, value, ReadAsFloat(dtype, at(k)));
    return WriteFloat(dtype, to, value);
  }
  for (size_t k = 1; k < inputs.size(); ++k) {
    if (IsBool(dtype)) {
      const bool x = *to != std::byte{0}, y = *at(k) != std::byte{0};
      const bool both =
          reduction == Reduction::kProduct || reduction == Reduction::kMin || reduction == Reduction::kAnd;
      *to = static_cast<std::byte>(both ? x && y : x || y);
    } else if (IsInteger(dtype)) {
      WriteInteger(dtype, to, CombineIntegers(reduction, ReadInteger(dtype, to), ReadInteger(dtype, at(k))));
    } else if (dtype == DType::kF32) {
      CombineInPlace<float>(reduction, to, at(k));
    } else if (dtype == DType::kF64) {
      CombineInPlace<double>(reduction, to, at(k));
    } else if (dtype == DType::kC64) {
      CombineComplex<float>(reduction, to, at(k));
    } else {
      CombineComplex<double>(reduction, to, at(k));
    }
  }
}

// The outputs of all members, by the meaning of each kind.
inline std::vector<Bytes> PlainOutputs(const Collective& call, const std::vector<Bytes>& inputs) {
  const auto size = static_cast<int64_t>(inputs.size());
  const int64_t each = BytesOf(call.dtype), n = call.count;
  std::vector<Bytes> outputs;
  std::vector<const std::byte*> from;
  for (const Bytes& input : inputs) from.push_back(input.data());
  for (int64_t rank = 0; rank < size; ++rank) {
    Bytes output(static_cast<size_t>(OutputCount(call, static_cast<int>(size)) * each), std::byte{0});
    for (int64_t i = 0; i < static_cast<int64_t>(output.size()) / each; ++i) {
      std::byte* const to = output.data() + i * each;
      const auto copy = [&](int64_t source, int64_t element) {
        std::memcpy(to, from[static_cast<size_t>(source)] + element * each, static_cast<size_t>(each));
      };
      switch (call.kind) {
        case CollectiveKind::kAllReduce: PlainElement(call.dtype, call.reduction, from, i, to); break;
        case CollectiveKind::kReduceScatter: PlainElement(call.dtype, call.reduction, from, rank * n + i, to); break;
        case CollectiveKind::kAllGather: copy(i / n, i % n); break;
        case CollectiveKind::kAllToAll: copy(i / n, rank * n + i % n); break;
        case CollectiveKind::kBroadcast: copy(call.root, i); break;
        case CollectiveKind::kPermute:
          for (const Pair& pair : call.pairs) {
            if (pair.to == rank) copy(pair.from, i);
          }
          break;
        case CollectiveKind::kBarrier: break;
      }
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

// NaN has many spellings; of all other values each bit counts.
inline bool SameElements(DType dtype, const Bytes& a, const Bytes& b) {
  if (a == b) return true;
  if (a.size() != b.size() || !(IsFloat(dtype) || IsComplex(dtype))) return false;
  const DType part = PartOf(dtype);
  const auto each = static_cast<size_t>(BytesOf(part));
  for (size_t i = 0; i < a.size(); i += each) {
    if (std::memcmp(&a[i], &b[i], each) == 0) continue;
    const auto is_nan = [&](const std::byte* at) {
      if (IsWidened(part)) return std::isnan(ReadAsFloat(part, at));
      if (part == DType::kF64) {
        double value;
        std::memcpy(&value, at, sizeof value);
        return std::isnan(value);
      }
      float value;
      std::memcpy(&value, at, sizeof value);
      return std::isnan(value);
    };
    if (!is_nan(&a[i]) || !is_nan(&b[i])) return false;
  }
  return true;
}

}  // namespace weft::distributed::test
