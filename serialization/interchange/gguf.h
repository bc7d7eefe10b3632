// GGUF, versions 2 and 3, of either byte order, one file or all of a split one (github.com/ggml-org/ggml, docs/gguf.md).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "serialization/interchange/tensor_file.h"

namespace weft {

absl::StatusOr<std::unique_ptr<TensorFile>> OpenGguf(FileSystem* fs, const std::string& path);

}  // namespace weft
