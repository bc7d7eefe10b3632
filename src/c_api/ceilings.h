// The most that this machine can do, which `weft ceilings` measures and keeps beside the compile cache.
#pragma once

#include "src/c_api/context.h"
#include "src/runtime/trace_render.h"

namespace weft::c_api {

// The machine's name as far as its ceilings depend on it, the file that is theirs, and what that file says. The name is empty on other
// platforms than cpu, the file without a cache, the rates are 0 where nobody has measured them.
Machine MachineOf(const Context& context);

}  // namespace weft::c_api
