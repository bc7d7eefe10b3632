// A backend whose devices copy values to each other is this, too: a value that goes to another device is then nowhere on the host.
// Beside Backend, because others have one device, or one memory.
#pragma once

#include "absl/status/statusor.h"
#include "src/runtime/buffer.h"

namespace weft {

class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;
  // Begins a copy to another device of this backend and returns its buffer, which is ready when the copy is done. The source keeps
  // its bytes until then: who donates buffers does not donate this one before.
  virtual absl::StatusOr<Ref<Buffer>> CopyToDevice(const Ref<Buffer>& from, Device* to) = 0;
};

}  // namespace weft
