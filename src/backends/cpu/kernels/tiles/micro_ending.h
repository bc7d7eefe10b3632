// The end of a register tile: what becomes of its sums.
#pragma once

#include <vector>

#include "src/backends/cpu/kernels/tiles/micro_code.h"

namespace weft::cpu {

// Writes the code that stores `sums`, a row's vectors side by side, `c_offset` bytes into the rows of C, and goes on at `stored`.
void EndTile(TileCode& code, const std::vector<llvm::Value*>& sums, llvm::Value* c_offset, llvm::BasicBlock* stored);

}  // namespace weft::cpu
