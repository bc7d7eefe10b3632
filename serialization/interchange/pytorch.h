// Reads what torch.save writes, of both generations: today's ZIP archive, and the pickles end to end of before 1.6.
// It takes only data: tensors, dicts, lists, numbers and text. Everything else is refused by its name.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "serialization/interchange/tensor_file.h"
#include "serialization/interchange/zip.h"

namespace weft {

// Tells whether an archive's members are those of torch.save (NAME/data.pkl).
bool IsPyTorchArchive(const std::vector<ZipMember>& members);
absl::StatusOr<std::unique_ptr<TensorFile>> OpenPyTorchArchive(File file, uint64_t file_bytes,
                                                               std::vector<ZipMember> members);
// Begins with the pickle of PyTorch's own number.
bool IsOldPyTorch(std::span<const std::byte> first);
absl::StatusOr<std::unique_ptr<TensorFile>> OpenOldPyTorch(File file, uint64_t file_bytes);

}  // namespace weft
