// A backend that copies a part of a larger array to a device from where it lies is this, too: a part of a value that is cut along an
// inner dimension is then nowhere twice on the host. Beside Backend, because the others have every value whole, or in one piece.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "src/runtime/buffer.h"

namespace weft {

class StridedUploads {
 public:
  virtual ~StridedUploads() = default;
  // A new buffer of the elements that lie these bytes apart along each dimension, from `data` on, which is read during the call alone.
  // UNIMPLEMENTED or INVALID_ARGUMENT where the device takes nothing but neighbours.
  virtual absl::StatusOr<Ref<Buffer>> ToDeviceStrided(Device* device, DType dtype, std::span<const int64_t> dims,
                                                      std::span<const int64_t> byte_strides, const std::byte* data) = 0;
};

}  // namespace weft
