// The part of a tensor that the host reads.
#pragma once

#include <string_view>

#include "src/ir/mesh.h"
#include "src/lazy/value/tensor.h"

namespace weft::lazy {

// Bytes from an offset on, or a box of elements; in the caller's type or as devices hold it.
struct Window {
  int64_t offset = 0;
  const ir::Box* box = nullptr;
  bool as_held = false;

  // OUT_OF_RANGE and INVALID_ARGUMENT unless the tensor has it, in elements of `dtype`, in `size` bytes. `what` names the call.
  absl::Status Fits(const Tensor& tensor, DType dtype, size_t size, std::string_view what) const;
};

}  // namespace weft::lazy
