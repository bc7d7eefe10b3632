// The interpreter as a backend, so that the whole engine can run on it: device "reference:0", synchronous,
// host memory.
#pragma once

#include <memory>

#include "src/backends/backend.h"

namespace weft {

std::unique_ptr<Backend> NewReferenceBackend();

}  // namespace weft
