// A backend whose devices' memory the host writes is this, too: new buffers come empty, so that a reader of files fills them in
// place and a tensor's bytes are nowhere twice. Beside Backend, because plugins have nothing of the kind.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "src/runtime/buffer.h"

namespace weft {

class HostWritable {
 public:
  virtual ~HostWritable() = default;
  // A new buffer of any bytes, and where they are. They may be written until somebody else has the buffer.
  struct Writable {
    Ref<Buffer> buffer;
    void* data = nullptr;
  };
  virtual absl::StatusOr<Writable> NewWritable(Device* device, DType dtype, std::span<const int64_t> dims) = 0;
};

}  // namespace weft
