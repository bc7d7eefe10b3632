// Convolutions of few pixels and many channels, their kernel as PyTorch has it: [out channels, in channels, taps] is a matrix that is
// multiplied where it lies. Turning it round, and packing it, would move several times the memory that it is multiplied with.
#pragma once

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/conv/conv_zeros.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

// Runs a call that says `columns`, or prepares it, as the duty says.
absl::Status RunColumns(KernelSet& kernels, const ConvCall& call, Direction direction, const Duty& duty);

}  // namespace weft::cpu
