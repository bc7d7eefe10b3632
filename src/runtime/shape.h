// Dimensions of a tensor and checked arithmetic on them. Row-major everywhere outside a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "absl/container/inlined_vector.h"

namespace weft {

// Usually rank 0 to 4; 5 covers grouped convolutions without a heap allocation.
using Dims = absl::InlinedVector<int64_t, 5>;

// Largest rank anywhere (DLPack and files allow more, nothing of ours needs it).
inline constexpr size_t kMaxRank = 32;

// The limit of one tensor's elements: their bytes can be counted in 64 bits.
inline constexpr int64_t kMostElements = int64_t{1} << 59;

// Product of the dimensions, nullopt if one is negative or the product does not fit 63 bits.
inline std::optional<int64_t> CheckedCount(std::span<const int64_t> dims) {
  int64_t count = 1;
  bool zero = false;
  for (int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      zero = true;
      continue;
    }
    if (__builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return zero ? 0 : count;
}

// Counts the elements of shapes that inference has already accepted.
inline int64_t CountOf(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

// Without the dimensions of size 1, which mean nothing to memory.
inline Dims Squeezed(std::span<const int64_t> dims) {
  Dims kept;
  for (int64_t dim : dims) {
    if (dim != 1) kept.push_back(dim);
  }
  return kept;
}

// Row-major strides in elements.
inline Dims StridesOf(std::span<const int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * dims[i - 1];
  return strides;
}

// "[2, 3]", as error texts show shapes.
std::string DimsToString(std::span<const int64_t> dims);

}  // namespace weft
