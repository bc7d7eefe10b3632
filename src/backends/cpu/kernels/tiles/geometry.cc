// Checks of windows and convolutions.
#include "src/backends/cpu/kernels/tiles/geometry.h"

#include <algorithm>
#include <numeric>

#include "src/backends/cpu/kernels/tiles/kernels_internal.h"
#include "src/runtime/status.h"

namespace weft::cpu {

int64_t OutputSize(const SpatialDim& dim) {
  const int64_t spread = dim.in == 0 ? 0 : (dim.in - 1) * dim.lhs_dilation + 1;
  const int64_t padded = spread + dim.pad_lo + dim.pad_hi;
  const int64_t window = (dim.window - 1) * dim.rhs_dilation + 1;
  return padded < window || dim.window == 0 ? 0 : (padded - window) / dim.stride + 1;
}

absl::InlinedVector<PhaseDim, 1> SplitDim(const SpatialDim& dim) {
  absl::InlinedVector<PhaseDim, 1> phases;
  const int64_t period = dim.lhs_dilation / std::gcd(dim.lhs_dilation, dim.stride);
  for (int64_t first = 0; first < std::min(period, dim.out); ++first) {
    PhaseDim phase;
    phase.first = first;
    phase.step = period;
    phase.count = CeilDiv(dim.out - first, period);
    phase.in_step = period * dim.stride / dim.lhs_dilation;
    for (int64_t tap = 0; tap < dim.window; ++tap) {
      const int64_t at = first * dim.stride - dim.pad_lo + tap * dim.rhs_dilation;
      if (at % dim.lhs_dilation != 0) continue;
      const int64_t offset = at / dim.lhs_dilation;
      const int64_t last = offset + (phase.count - 1) * phase.in_step;
      if (last < 0 || offset >= dim.in) continue;  // always padding
      phase.taps.push_back(tap);
      phase.offsets.push_back(offset);
      if (offset < 0 || last >= dim.in) phase.inside = false;
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

Geometry PadRank(int rank, const std::array<SpatialDim, kMaxSpatialDims>& dims) {
  Geometry geometry;
  for (int d = 0; d < rank; ++d) geometry.dims[kMaxSpatialDims - rank + d] = dims[d];
  for (const SpatialDim& dim : geometry.dims) {
    geometry.in *= dim.in;
    geometry.out *= dim.out;
    geometry.window *= dim.window;
  }
  return geometry;
}

absl::Status CheckDims(const char* what, int rank, const std::array<SpatialDim, kMaxSpatialDims>& dims) {
  if (rank < 0 || rank > kMaxSpatialDims) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, what, " over ", rank,
                       " spatial dimensions; the CPU backend has at most ", kMaxSpatialDims);
  }
  for (int d = 0; d < rank; ++d) {
    const SpatialDim& dim = dims[d];
    if (dim.in < 0 || dim.window < 1 || dim.out < 0) {
      return UserError(what, ": sizes of spatial dimension ", d, " are input ", dim.in, ", window ", dim.window,
                       ", output ", dim.out);
    }
    if (dim.stride < 1 || dim.lhs_dilation < 1 || dim.rhs_dilation < 1) {
      return UserError(what, ": stride ", dim.stride, " and dilations ", dim.lhs_dilation, ", ", dim.rhs_dilation,
                       " of spatial dimension ", d, " must be at least 1");
    }
    if (dim.out != OutputSize(dim)) {
      return UserError(what, ": output of spatial dimension ", d, " is ", dim.out, ", the window gives ",
                       OutputSize(dim));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckConv(const ConvCall& call) {
  WEFT_RETURN_IF_ERROR(CheckDims("convolution", call.spatial_rank, call.dims));
  if (call.batch < 0 || call.in_channels < 0 || call.out_channels < 0) {
    return UserError("convolution with batch ", call.batch, ", channels ", call.in_channels, " to ", call.out_channels);
  }
  if (call.feature_groups < 1 || call.batch_groups < 1 || call.in_channels % call.feature_groups != 0 ||
      call.out_channels % call.feature_groups != 0 || call.batch % call.batch_groups != 0 ||
      call.out_channels % call.batch_groups != 0 || (call.feature_groups > 1 && call.batch_groups > 1)) {
    return UserError("convolution: ", call.feature_groups, " feature groups and ", call.batch_groups,
                     " batch groups do not divide batch ", call.batch, " and channels ", call.in_channels, " to ",
                     call.out_channels);
  }
  return absl::OkStatus();
}

}  // namespace weft::cpu
