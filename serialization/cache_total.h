// The bytes that a folder of the compile cache has in use, which all processes know together, and the removal of entries beyond a limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft {

struct CacheRemoved {
  uint64_t entries = 0, bytes = 0;
};

// The limit holds for all processes together: gc.lock holds the bytes in use, which every writer adds to under its lock. The
// number is only an estimate (entries are replaced, people delete files), corrected by each process's first entry and by
// each removal. Readers keep what they have open, so removing is safe; a name that is gone already is somebody else's success.
// One thread at a time.
class CacheTotal {
 public:
  // `root` is the folder of entries and their index.
  explicit CacheTotal(FileSystem* fs) : fs_(fs) {}

  // Counts an entry at the path `keep`, and removes those used least recently, down to nine tenths of the limit, where there are more.
  CacheRemoved Add(const std::string& root, uint64_t written, std::string_view keep, uint64_t limit);
  // Removes what was used last before a time, then the least recently used until at most `limit` bytes are left.
  absl::StatusOr<CacheRemoved> Prune(const std::string& root, uint64_t limit, int64_t used_before);

 private:
  struct Removal {
    uint64_t more_than, down_to;  // bytes: where there are more than so many, the oldest go until so many are left
    int64_t used_before;          // and whatever was used last before
    std::string_view keep;
  };
  CacheRemoved Remove(const std::string& root, const Removal& what, uint64_t* left);
  absl::StatusOr<File> Lock(const std::string& root);
  void Write(File& file, uint64_t total);

  FileSystem* const fs_;
  bool scanned_ = false;     // by this process, once
  uint64_t unreported_ = 0;  // bytes written that gc.lock does not know of
};

}  // namespace weft
