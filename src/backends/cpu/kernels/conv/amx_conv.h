// Convolutions of bf16 and of bytes on AMX's tiles, where AmxServes.
#pragma once

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/conv/conv_gather.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

absl::Status RunTileGather(KernelSet::State& state, const GatherCall& call, const Duty& duty);
absl::Status RunTileWeights(KernelSet::State& state, const ConvCall& call, const Duty& duty);

}  // namespace weft::cpu
