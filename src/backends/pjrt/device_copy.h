// Copies from one device of a client to another, by the plugin.
#pragma once

#include <memory>

#include "src/backends/pjrt/client.h"

namespace weft::pjrt {

// Begins a copy and returns its buffer, ready when it is done; of `from` the bytes are kept until then. A deadline holds as for a launch.
absl::StatusOr<Ref<Buffer>> CopyToDevice(const std::shared_ptr<Client>& client, const Ref<Buffer>& from, Device* to);

}  // namespace weft::pjrt
