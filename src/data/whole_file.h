// A file of records in memory, whole, inflated if it is gzip; and the files that a pattern stands for.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft::data {

// The first `count` bytes, fewer of a shorter file. Gzip (RFC 1952) is known by its first bytes, not by the name.
absl::StatusOr<std::string> ReadFirstBytes(FileSystem* fs, const std::string& path, size_t count);
// All of them. RESOURCE_EXHAUSTED where the machine has no memory for them, however small the file is. Thread rule: any thread.
absl::StatusOr<std::string> ReadWholeFile(FileSystem* fs, const std::string& path);

// `path` itself if there is such a file or if it has none of * ? [. Else the files of its folder whose names the last part of it matches
// (POSIX fnmatch), by name; NOT_FOUND if there is none.
absl::StatusOr<std::vector<std::string>> FilesOf(FileSystem* fs, const std::string& path);

}  // namespace weft::data
