// Element access by dtype, and the two 16-bit float conversions.
#include "src/runtime/host_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "src/runtime/launch_look.h"
#include "src/runtime/narrow.h"

namespace weft {

uint16_t FloatToBF16(float value) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

uint16_t DoubleToBF16(double value) { return FloatToBF16(ToOdd(value)); }

uint16_t DoubleToF16(double value) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 48) & 0x8000);
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude >= 65520.0) return sign | 0x7C00;
  if (magnitude < 0x1p-14) {  // subnormal: units of 2^-24, rounded to even by nearbyint in the default mode
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24)));
  }
  int exponent;
  const double fraction = std::frexp(magnitude, &exponent);                               // in [0.5, 1)
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(fraction, 11)));  // 1024..2048
  const uint32_t result = (static_cast<uint32_t>(exponent + 13) << 10) + mantissa;
  return static_cast<uint16_t>(sign | result);
}

double F16ToDouble(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  if (exponent == 31) return std::copysign(mantissa != 0 ? NAN : HUGE_VAL, sign);
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

namespace {

template <typename T>
T Load(const std::byte* base, int64_t i) {
  T value;
  std::memcpy(&value, base + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void Store(std::byte* base, int64_t i, T value) {
  std::memcpy(base + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
T Saturate(double value) {
  if (std::isnan(value)) return 0;
  // The upper bound as a double may round up to 2^N, so compare with >=.
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

}  // namespace

// Large ones are filled piece by piece: a virtual machine that gives memory out for the first time takes milliseconds for each MiB.
// A launch that ends meanwhile has no use for the rest, and whoever runs it asks why before it believes that memory is short.
HostTensor::HostTensor(DType dtype, Dims dims) : dtype_(dtype), dims_(std::move(dims)), count_(CountOf(dims_)) {
  constexpr size_t kPiece = 8 << 20;
  const auto bytes = static_cast<size_t>(count_ * BytesOf(dtype));
  bytes_.reserve(bytes);
  while (bytes_.size() < bytes) {
    if (!bytes_.empty() && LaunchEnds()) throw std::bad_alloc();
    bytes_.resize(std::min(bytes, bytes_.size() + kPiece));
  }
}

HostTensor::HostTensor(DType dtype, Dims dims, std::span<const std::byte> bytes)
    : dtype_(dtype), dims_(std::move(dims)), count_(CountOf(dims_)), bytes_(bytes.begin(), bytes.end()) {}

double HostTensor::GetDouble(int64_t i) const {
  const std::byte* base = bytes_.data();
  if (IsNarrow(dtype_) && IsFloat(dtype_)) return F8ToFloat(dtype_, Load<uint8_t>(base, i));
  switch (dtype_) {
    case DType::kF32: return Load<float>(base, i);
    case DType::kF64: return Load<double>(base, i);
    case DType::kBF16: return BF16ToFloat(Load<uint16_t>(base, i));
    case DType::kF16: return F16ToDouble(Load<uint16_t>(base, i));
    case DType::kC64: return Load<float>(base, 2 * i);
    case DType::kC128: return Load<double>(base, 2 * i);
    case DType::kU64: return static_cast<double>(Load<uint64_t>(base, i));
    default: return static_cast<double>(GetInt(i));
  }
}

int64_t HostTensor::GetInt(int64_t i) const {
  const std::byte* base = bytes_.data();
  switch (dtype_) {
    case DType::kBool:
    case DType::kU2:
    case DType::kU4:
    case DType::kU8: return Load<uint8_t>(base, i);
    case DType::kI2:
    case DType::kI4:
    case DType::kI8: return Load<int8_t>(base, i);
    case DType::kI16: return Load<int16_t>(base, i);
    case DType::kU16: return Load<uint16_t>(base, i);
    case DType::kI32: return Load<int32_t>(base, i);
    case DType::kU32: return Load<uint32_t>(base, i);
    case DType::kI64:
    case DType::kU64: return Load<int64_t>(base, i);
    default: return Saturate<int64_t>(GetDouble(i));
  }
}

void HostTensor::SetDouble(int64_t i, double value) {
  std::byte* base = bytes_.data();
  if (IsNarrow(dtype_)) {
    if (IsFloat(dtype_)) return Store(base, i, FloatToF8(dtype_, ToOdd(value)));
    const int32_t whole = Saturate<int32_t>(value);
    return Store(base, i, static_cast<int8_t>(std::clamp(whole, LeastOf(dtype_), LargestOf(dtype_))));
  }
  switch (dtype_) {
    case DType::kF32: return Store(base, i, static_cast<float>(value));
    case DType::kF64: return Store(base, i, value);
    case DType::kC64: Store(base, 2 * i, static_cast<float>(value)); return Store(base, 2 * i + 1, 0.0f);
    case DType::kC128: Store(base, 2 * i, value); return Store(base, 2 * i + 1, 0.0);
    case DType::kBF16: return Store(base, i, DoubleToBF16(value));
    case DType::kF16: return Store(base, i, DoubleToF16(value));
    case DType::kBool: return Store<uint8_t>(base, i, value != 0);
    case DType::kI8: return Store(base, i, Saturate<int8_t>(value));
    case DType::kI16: return Store(base, i, Saturate<int16_t>(value));
    case DType::kI32: return Store(base, i, Saturate<int32_t>(value));
    case DType::kI64: return Store(base, i, Saturate<int64_t>(value));
    case DType::kU8: return Store(base, i, Saturate<uint8_t>(value));
    case DType::kU16: return Store(base, i, Saturate<uint16_t>(value));
    case DType::kU32: return Store(base, i, Saturate<uint32_t>(value));
    case DType::kU64: return Store(base, i, Saturate<uint64_t>(value));
    default: return;
  }
}

void HostTensor::SetInt(int64_t i, int64_t value) {
  if (IsComplex(dtype_)) {
    HostTensor part(PartOf(dtype_), {});
    part.SetInt(0, value);
    return SetDouble(i, part.GetDouble(0));
  }
  if (IsInteger(dtype_) || value >= 0) return SetUnsigned(i, static_cast<uint64_t>(value));
  // No integer that a double rounds is near an f8, and not all of those have a sign bit.
  if (IsNarrow(dtype_)) return SetDouble(i, static_cast<double>(value));
  SetUnsigned(i, -static_cast<uint64_t>(value));
  if (IsFloat(dtype_)) bytes_[(i + 1) * BytesOf(dtype_) - 1] |= std::byte{0x80};
}

HostTensor HostTensor::Part(int part) const {
  HostTensor values(PartOf(dtype_), dims_);
  const size_t width = BytesOf(values.dtype());
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(values.bytes_.data() + i * width, bytes_.data() + (2 * i + part) * width, width);
  }
  return values;
}

void HostTensor::SetPart(int part, const HostTensor& values) {
  const size_t width = BytesOf(values.dtype());
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(bytes_.data() + (2 * i + part) * width, values.bytes_.data() + i * width, width);
  }
}

void HostTensor::SetUnsigned(int64_t i, uint64_t value) {
  std::byte* base = bytes_.data();
  if (IsNarrow(dtype_) && IsInteger(dtype_)) return Store(base, i, static_cast<int8_t>(Wrapped(dtype_, value)));
  switch (BytesOf(dtype_) * (IsInteger(dtype_) ? 1 : 0)) {
    case 1: return Store(base, i, static_cast<uint8_t>(value));
    case 2: return Store(base, i, static_cast<uint16_t>(value));
    case 4: return Store(base, i, static_cast<uint32_t>(value));
    case 8: return Store(base, i, value);
    default: break;
  }
  if (dtype_ == DType::kF32) return Store(base, i, static_cast<float>(value));
  if (BytesOf(dtype_) <= 2 && value >> 53 != 0) {  // to odd, like DoubleToBF16
    value = (value & ~uint64_t{0x7FF}) | ((value & 0x7FF) != 0 ? 0x800 : 0);
  }
  SetDouble(i, static_cast<double>(value));
}

}  // namespace weft
