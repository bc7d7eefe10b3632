// The computing of a gathering convolution: tiles of one phase through one block of K and some panels of the kernel.
#pragma once

#include "src/backends/cpu/kernels/conv/gather_pointers.h"

namespace weft::cpu {

// The tiles of one phase without parts: of blocks that others follow, and of the last one if it ends the results.
struct PhaseTiles {
  TileSet plain, end;

  absl::Status Fetch(KernelSet::State& state, const GatherPlan& plan, const Phase& phase);
};

// Runs tiles [begin, end) of a phase without parts through `block`, one of its blocks.
void RunGatherBlock(const GatherOperands& operands, const Phase& phase, const KBlock& block, const PhaseTiles& set,
                    Range tiles, Range panels, const GatherTables& tables);

}  // namespace weft::cpu
