// Reads IDX files, the format of the MNIST family: big-endian header, dense row-major payload, plain or gzip.
// Format: http://yann.lecun.com/exdb/mnist ("FILE FORMATS FOR THE MNIST DATABASE").
#pragma once

#include <string>

#include "src/runtime/host_tensor.h"
#include "src/runtime/io.h"

namespace weft {

// The whole file as one tensor (u8, i8, i16, i32, f32 or f64). Gzip is known by its first bytes, not by the name. Nothing is
// allocated for elements that the file does not hold. Thread rule: any thread.
absl::StatusOr<HostTensor> ReadIdx(FileSystem* fs, const std::string& path);

}  // namespace weft
