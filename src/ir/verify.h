// Checks a finished module against the operations' own rules. Runs between passes in tests, and on what came from outside.
#pragma once

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::ir {

// InternalErrors name the function and show the node's text. Linear and iterative but for regions (kMaxRegionDepth).
absl::Status Verify(const Module& module);
// `words`: size of the argument block.
absl::Status Verify(const Function& function, uint32_t words = 0);

// How many words of the u32 argument block a parameter of this type takes; see ParameterInfo.
uint32_t WordsOf(const Type& type);

}  // namespace weft::ir
