// A host's allocator that comes while other threads may allocate.
#pragma once

#include "src/runtime/alloc_hook.h"

namespace weft {

// SetLargeAllocator where nothing is allocated; false, and nothing changed, if anything is.
bool SetLargeAllocatorIfIdle(const LargeAllocator& allocator);

}  // namespace weft
