// Compiles for devices that are not there: a backend over a plugin's topology, whose tensors have no bytes.
#pragma once

#include <memory>

#include "src/backends/backend.h"
#include "src/backends/pjrt/pjrt_backend.h"

namespace weft::pjrt {

// Makes the backend of options.topology. Programs are compiled and kept in the cache under the key that they have where
// the devices are; launches do nothing; reads say that there is no device, or give zeros.
absl::StatusOr<std::unique_ptr<Backend>> NewAbsentBackend(const Plugin& plugin, const Options& options);

}  // namespace weft::pjrt
