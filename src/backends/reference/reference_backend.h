// The interpreter as a backend, so that the whole engine can run on it: devices "reference:0", …, which share the host's memory. Launches run
// before they return, but those that call custom operations, and what waits for such: they have a thread, in their order.
#pragma once

#include <memory>

#include "src/backends/backend.h"
#include "src/ops/custom/functions.h"
#include "src/runtime/backend_services.h"

namespace weft {

// `custom` is what programs may call by name; null: none. The services' budget is of tensors, and of the values of a launch beside
// them.
std::unique_ptr<Backend> NewReferenceBackend(std::shared_ptr<ops::CustomFunctions> custom = nullptr,
                                             const BackendServices& services = {}, int64_t devices = 1);

}  // namespace weft
