// One driver for the two directions in which every output pixel gathers from input pixels: the forward pass, and the
// gradient of the input (which gathers from the output's gradient through the transposed kernel).
#pragma once

#include "src/backends/cpu/kernels/tiles/geometry.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

class PaddedImage;

// to[n, o, :] = sum over taps t of from[n, o * stride - pad_lo + t * rhs_dilation (every lhs_dilation-th), :] W[t]
struct GatherCall {
  TypePlan types;
  DType input = DType::kF32;
  DType output = DType::kF32;
  int64_t batch = 1;
  Geometry geometry;  // dims[].in is `from`'s, dims[].out is `to`'s
  int64_t groups = 1;
  int64_t group_from = 1, group_to = 1;  // channels per group
  const void* from = nullptr;
  const PaddedImage* padded = nullptr;  // instead: lines of it are made as tiles come to them
  const void* weights = nullptr;
  const void* packed = nullptr;  // the kernel as GatherPlan::Pack wrote it, instead of `weights`
  void* to = nullptr;
  // Element (tap, c in from's group, o in to's group, group) of the kernel, tap being the flat stored tap.
  int64_t tap_stride = 0, from_stride = 0, to_stride = 0, group_stride = 0;
  Epilogue epilogue;
  Ending ending;
  UseWinograd winograd = UseWinograd::kNever;
  bool forward = false;  // `weights` may stay packed

  int64_t FromChannels() const { return groups * group_from; }
  int64_t ToChannels() const { return groups * group_to; }
  // Tells whether the epilogue makes the same of denormal sums as of zeros, and makes no denormal results before
  // something is added: such numbers vanish beside summands of a usual size.
  bool DenormalsVanish() const;
};

absl::Status RunGather(KernelSet::State& state, const GatherCall& call, const Duty& duty);

// The gradient of the kernel, of which there is something (conv_weights.cc). bf16 only in pairs.
absl::Status RunWeights(KernelSet::State& state, const ConvCall& call, const Duty& duty);

}  // namespace weft::cpu
