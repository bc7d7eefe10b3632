// A file that appears whole or not at all: written under a temporary name beside its final one, made durable, renamed.
// Until Commit has renamed, the old file stays as it was; without Commit the temporary is removed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft {

enum class Durability {
  kPower,    // after Commit the file survives a power loss: data and name are synced
  kProcess,  // survives the death of the process, not of the machine; nothing is synced
};

class AtomicFile {
 public:
  struct Options {
    bool direct = false;  // try to bypass the page cache; falls back silently
    uint32_t new_mode =
        0644;  // of a file that did not exist; an existing one hands on its own (less what umask forbids)
    bool clean_stale = true;  // remove temporaries of writers that died at the same name
  };

  AtomicFile() = default;
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&&) = default;
  ~AtomicFile() { Abort(); }

  static absl::StatusOr<AtomicFile> Create(FileSystem* fs, const std::string& path, const Options& options);

  File& file() { return file_; }
  bool direct() const { return direct_; }
  const std::string& temporary_path() const { return file_.path(); }

  absl::Status Commit(Durability durability);
  void Abort();

 private:
  File file_;
  std::string path_;
  uint32_t mode_ = 0644;
  bool direct_ = false;
};

// Removes what dead writers left beside `path`. A live writer holds a lock on its temporary; errors are ignored.
void RemoveStaleTemporaries(FileSystem* fs, const std::string& path);

}  // namespace weft
