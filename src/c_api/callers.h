// This file walks the stack of an exported function's callers.
#pragma once

#include "src/c_api/guard.h"
#include "src/ir/location.h"

namespace weft::c_api {

// The innermost frames of the caller, as far as code with frame pointers leads; at least the address that the call returns to.
ir::Location CallersLocation(const CalledFrom& from);

}  // namespace weft::c_api
