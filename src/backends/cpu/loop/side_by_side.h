// How many vectors a loop computes side by side. The operations of a long chain wait for each other, and the next vector's are
// too far away for the processor to begin with them meanwhile: code then goes through the chain with several vectors at once.
#pragma once

#include <vector>

#include "src/backends/cpu/loop/loop.h"

namespace weft::cpu {

struct CpuTarget;

// 1, 2, 4 or 8 vectors of `lanes` for the expressions in `needed`. More code takes longer to compile, so loops over few elements
// have 1 and those over more of them 2; 8 are for roundings. Results do not depend on it.
int VectorsSideBySide(const LoopKernel& kernel, const std::vector<bool>& needed, const CpuTarget& target, int lanes);

// Reductions of fewer tasks are cut into pieces.
inline constexpr int64_t kFewTasks = 8;

// Returns the vectors whose sums go down side by side in one task of a loop over columns.
int VectorsOfPanel(const LoopKernel& kernel, const CpuTarget& target, int lanes);

}  // namespace weft::cpu
