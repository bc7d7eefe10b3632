// One folder of the compile cache, <dir>/v1, as files: what is in it, and whether it may be used. compile_cache.h has the policy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "serialization/cache_entry.h"
#include "src/runtime/io.h"

namespace weft {

// Empty if nobody but this user (or root) can put code there.
std::string WhyUntrusted(const FileInfo& info);
// The same of a folder, named in the text; empty if there is none.
std::string WhyFolderUntrusted(FileSystem* fs, const std::string& path);

// Opens a regular file, no link, that nobody but this user (or root) may write to; else PERMISSION_DENIED.
absl::StatusOr<File> OpenTrusted(FileSystem* fs, const std::string& path, FileInfo* info);

struct CacheFile {
  std::string path;
  int64_t modified_ns = 0;  // when it was used last, to the hour
  uint64_t bytes = 0;
};
// All entries. `tidy`: what killed processes left half written goes after an hour, which no limit counts.
std::vector<CacheFile> ScanCacheFolder(FileSystem* fs, const std::string& root, bool tidy);

// The bytes of an entry's file, whoever wrote them. PERMISSION_DENIED of a file that is not trusted.
absl::StatusOr<std::string> ReadCacheFile(FileSystem* fs, const std::string& path, FileInfo* info);
// Returns the facts of an entry. `whole` checks every byte of it, and its MAC where there is a key; else only its first bytes are read.
absl::StatusOr<CacheEntryAbout> AboutCacheFile(FileSystem* fs, const std::string& path, bool whole,
                                               std::string_view mac_key);

struct CacheListed {
  std::string name;  // 32 digits
  std::string path;
  size_t folder = 0;
  uint64_t bytes = 0;
  int64_t used_unix_ns = 0;
  absl::StatusOr<CacheEntryAbout> about;
};
// Appends the entries of the folder, said to be folder number `folder`; `verify` reads each whole.
void ListCacheFolder(FileSystem* fs, const std::string& root, size_t folder, bool verify, std::string_view mac_key,
                     std::vector<CacheListed>* listed);

}  // namespace weft
