// The index arithmetic of windows, shared by convolution and pooling: which input position a tap of an output position
// reads. Dimensions are padded to kMaxSpatialDims with ones in front, so that loops have one shape.
#pragma once

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "src/backends/cpu/kernels/kernels.h"

namespace weft::cpu {

// Position of `tap` for output `out` in the input, -1 where it falls on padding or between dilated elements.
inline int64_t InputPosition(const SpatialDim& dim, int64_t out, int64_t tap) {
  const int64_t at = out * dim.stride - dim.pad_lo + tap * dim.rhs_dilation;
  if (at < 0 || at % dim.lhs_dilation != 0) return -1;
  const int64_t index = at / dim.lhs_dilation;
  return index < dim.in ? index : -1;
}

inline int64_t WeightTap(const SpatialDim& dim, int64_t tap) { return dim.reversed ? dim.window - 1 - tap : tap; }

// Every output position reads the input position of the same number.
inline bool HasNoWindow(const SpatialDim& dim) {
  return dim.window == 1 && dim.stride == 1 && dim.lhs_dilation == 1 && dim.pad_lo == 0 && dim.in == dim.out;
}

struct Geometry {
  std::array<SpatialDim, kMaxSpatialDims> dims;  // [kMaxSpatialDims - rank, kMaxSpatialDims) are the caller's
  int64_t in = 1, out = 1, window = 1;           // products
};
Geometry PadRank(int rank, const std::array<SpatialDim, kMaxSpatialDims>& dims);

// One dimension of one phase: output positions first, first + step, … ; output i reads input i * in_step + offset[tap]. Every
// launch of a convolution makes some, most of a tap or three: in place, for an allocation takes as long as cutting.
struct PhaseDim {
  int64_t first = 0, step = 1, count = 0, in_step = 1;
  absl::InlinedVector<int64_t, 3> taps;     // as counted by the window
  absl::InlinedVector<int64_t, 3> offsets;  // of the input, by index into taps
  bool inside = true;                       // no position of no tap falls outside
};
// Dilated inputs split outputs into phases, each of which looks like a plain strided convolution.
absl::InlinedVector<PhaseDim, 1> SplitDim(const SpatialDim& dim);

// Counts from [0, extents) in row-major order.
struct Odometer {
  std::array<int64_t, kMaxSpatialDims> at = {};
  template <typename Extent>
  void Set(int64_t flat, Extent extent) {
    for (int d = kMaxSpatialDims - 1; d >= 0; --d) {
      at[d] = flat % extent(d);
      flat /= extent(d);
    }
  }
};

// Whose fault, in words: negative sizes, zero strides, outputs that do not follow from the rest.
absl::Status CheckDims(const char* what, int rank, const std::array<SpatialDim, kMaxSpatialDims>& dims);
absl::Status CheckConv(const ConvCall& call);

}  // namespace weft::cpu
