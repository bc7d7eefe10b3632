// safetensors: eight bytes of length, a JSON header, then the tensors end to end (huggingface.co/docs/safetensors, "Format").
// Read: one file, or the shards that a *.index.json names. Written: one file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/tensor_file.h"

namespace weft {

absl::StatusOr<std::unique_ptr<TensorFile>> OpenSafetensors(FileSystem* fs, const std::string& path);
// Shards stand in the index's folder.
absl::StatusOr<std::unique_ptr<TensorFile>> OpenSafetensorsIndex(FileSystem* fs, const std::string& path);

// Tells whether a header's length and first byte can be those of a safetensors file.
bool IsSafetensors(std::span<const std::byte> first, uint64_t file_bytes);

}  // namespace weft
