// A dense row-major tensor in host memory, owned: literals in graphs, the reference backend's values, test data.
// Not for the hot path: element access goes through a switch on the dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/runtime/alloc_hook.h"
#include "src/runtime/dtype.h"
#include "src/runtime/ref.h"
#include "src/runtime/shape.h"

namespace weft {

// Rounds to nearest even, once; NaN stays NaN, overflow becomes infinity.
uint16_t FloatToBF16(float value);
uint16_t DoubleToBF16(double value);
uint16_t DoubleToF16(double value);
double F16ToDouble(uint16_t bits);
inline float BF16ToFloat(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  return __builtin_bit_cast(float, wide);
}

// Thread rule: like a std::vector.
class HostTensor {
 public:
  HostTensor() = default;
  // Zero-filled. The type must be computable, the bytes must be countable: callers have checked. std::bad_alloc if there is
  // no memory for them.
  HostTensor(DType dtype, Dims dims);
  HostTensor(DType dtype, Dims dims, std::span<const std::byte> bytes);

  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int64_t count() const { return count_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::span<std::byte> mutable_bytes() { return bytes_; }

  // Element i in row-major order. Integers convert as C does after checking nothing; floats round to nearest even. Of a complex
  // element this is the real part, and setting it makes the imaginary one 0.
  double GetDouble(int64_t i) const;
  int64_t GetInt(int64_t i) const;          // u64 above 2^63-1 comes back as its two's complement image
  void SetDouble(int64_t i, double value);  // float to integer truncates and saturates, NaN gives 0
  void SetInt(int64_t i, int64_t value);    // wraps to the width; a float rounds once
  void SetUnsigned(int64_t i, uint64_t value);

  // The real (0) or imaginary (1) parts of a complex tensor, and the way back.
  HostTensor Part(int part) const;
  void SetPart(int part, const HostTensor& values);

  friend bool operator==(const HostTensor& a, const HostTensor& b) {
    return a.dtype_ == b.dtype_ && a.dims_ == b.dims_ && a.bytes_ == b.bytes_;
  }

 private:
  DType dtype_ = DType::kInvalid;
  Dims dims_;
  int64_t count_ = 0;
  std::vector<std::byte, LargeStdAllocator<std::byte>> bytes_;
};

// A literal inside a graph. Immutable and shared.
class Literal : public RefCounted {
 public:
  explicit Literal(HostTensor value) : value(std::move(value)) {}
  const HostTensor value;
};

}  // namespace weft
