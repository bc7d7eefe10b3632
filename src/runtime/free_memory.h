// Returns memory that the process's malloc keeps after a peak.
#pragma once

namespace weft {

// Gives it back to the system, as far as that malloc is the C library's.
void ReleaseFreeMemory();

}  // namespace weft
