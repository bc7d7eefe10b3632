// Tensors as text for people, the way NumPy writes arrays.
#pragma once

#include <functional>
#include <string>

#include "src/runtime/host_tensor.h"
#include "src/runtime/status.h"

namespace weft::c_api {

struct PrintOptions {
  int64_t threshold = 1000;  // elements above which only the edges are shown
  int64_t edge_items = 3;
  int64_t precision = 4;
  int64_t line_width = 75;
};

// Reads elements [first, first + count) of the tensor's row-major order into `out`. Called for what is shown, no more.
using ReadElements = std::function<absl::Status(int64_t first, int64_t count, std::span<std::byte> out)>;

absl::StatusOr<std::string> FormatTensor(DType dtype, const Dims& dims, const PrintOptions& options,
                                         const ReadElements& read);

}  // namespace weft::c_api
