// Loops and branches as text says them, where a capture is the use of an outer name.
#pragma once

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::compiler {

// Their functions capture what they use, in order of first use, and nothing else: so they come back from text, and what was
// computed for captures without a use is not in it. Calls leave such behind when they are written out. The module's nodes must be
// its own.
absl::StatusOr<ir::Module> TidyCaptures(const ir::Module& module);

}  // namespace weft::compiler
