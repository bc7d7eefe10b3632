// Shared libraries as files: what is at a path, before the loader maps it and the process runs it.
#pragma once

#include <string>
#include <string_view>

#include "src/runtime/io.h"

namespace weft {

// Opens the library of another's at the path and looks at its head. Errors say what is there instead: no regular file, no library,
// one for another machine, one that is cut off (DATA_LOSS), of which the loader would map what is not there. `what` is what the caller
// calls it: "plugin".
absl::StatusOr<File> OpenLibrary(FileSystem* fs, const std::string& path, std::string_view what, FileInfo* info);

}  // namespace weft
