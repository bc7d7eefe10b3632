// NumPy's files: one array (.npy), or several in a ZIP archive (.npz). Python objects in them are never looked at.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/tensor_file.h"
#include "serialization/interchange/zip.h"

namespace weft {

// The array is called "arr_0", as numpy.savez would call it.
absl::StatusOr<std::unique_ptr<TensorFile>> OpenNpy(FileSystem* fs, const std::string& path);
// Opens an archive whose directory has been read. Arrays have the members' names without ".npy".
absl::StatusOr<std::unique_ptr<TensorFile>> OpenNpz(File file, uint64_t file_bytes, std::vector<ZipMember> members);

}  // namespace weft
