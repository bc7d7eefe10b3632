// The kernels of scatter, which stand in the list of those that move elements (host_movement.cc).
#pragma once

#include "src/backends/cpu/launch/host_kernels.h"

namespace weft::cpu {

// Updates in their order.
absl::Status RunScatter(const HostCall& call);
absl::Status PrepareScatter(const HostPreparation& call);
// Sums of updates, row by row of the result; less a rate times each sum, where the call brings one.
absl::Status RunScatterRows(const HostCall& call);
// The same of rows that a gather would have copied.
absl::Status RunScatterGathered(const HostCall& call);

}  // namespace weft::cpu
