// See free_memory.h.
#include "src/runtime/free_memory.h"

#include <malloc.h>

namespace weft {

void ReleaseFreeMemory() { malloc_trim(0); }

}  // namespace weft
