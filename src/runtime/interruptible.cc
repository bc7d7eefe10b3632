// See interruptible.h.
#include "src/runtime/interruptible.h"

namespace weft {
thread_local constinit Interruptible* Interruptible::current_ = nullptr;
}  // namespace weft
