// How the fake plugin runs programs, on one device or on several at once.
#pragma once

#include "src/backends/pjrt/api.h"
#include "src/runtime/status.h"

namespace weft::pjrt::fake {

absl::Status LoadedExecutableExecute(api::Execute& args);

}  // namespace weft::pjrt::fake
