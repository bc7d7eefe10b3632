// A function as a file: its text in the container of compile-cache entries (cache_entry.h), which has the checksums and the
// compression. docs/formats.md has the promise of who reads it when.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft {

// The file appears whole or not at all; what was there stays until then.
absl::Status WriteFunctionFile(FileSystem* fs, const std::string& path, std::string text);

// The function of a file: one of the two forms.
struct FunctionFile {
  std::string text;       // as it was written
  std::string canonical;  // of an entry of the compile cache
};
// NOT_FOUND, DATA_LOSS, UNIMPLEMENTED for what a later library wrote.
absl::StatusOr<FunctionFile> ReadFunctionFile(FileSystem* fs, const std::string& path);

}  // namespace weft
