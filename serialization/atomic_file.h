// A file that appears whole or not at all: written under a temporary name beside its final one, made durable, renamed.
// Until Commit has renamed, the old file stays as it was; without Commit the temporary is removed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft {

enum class Durability {
  kPower,    // after Commit the file survives a power loss: data and name are synced
  kProcess,  // survives the death of the process, not of the machine; nothing is synced
};

// How long the disk is waited for by whoever may give up. Without either it is simply waited for.
struct WaitForDisk {
  std::function<absl::Status()> look;                                  // asked every 10 ms; an error ends the wait
  std::function<absl::Status(std::function<void()>)> on_other_thread;  // runs it where it may take its time
};

// Where a file is to be: a name in a folder that is open, and so stays the same one whatever becomes of its path or of the
// process's current directory.
struct FilePlace {
  // NOT_FOUND if there is no such folder.
  static absl::StatusOr<FilePlace> Find(FileSystem* fs, const std::string& path);

  std::string path;  // as it was given, for error texts
  std::string name;
  File folder;
  bool readable = true;  // the folder; one that may only be written to can neither be listed nor synced
};

class AtomicFile {
 public:
  struct Options {
    Durability durability = Durability::kPower;
    bool direct = false;  // try to bypass the page cache; falls back silently
    uint32_t new_mode =
        0644;  // of a file that did not exist; an existing one hands on its own (less what umask forbids)
    bool clean_stale = true;   // remove what writers that died left in the folder
    bool replace_any = false;  // whatever has the name (but a folder) goes, and its permissions with it
  };

  AtomicFile() = default;
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&&) = default;
  ~AtomicFile() { Abort(); }

  static absl::StatusOr<AtomicFile> Create(FilePlace place, const Options& options);
  static absl::StatusOr<AtomicFile> Create(FileSystem* fs, const std::string& path, const Options& options);

  File& file() { return file_; }
  bool direct() const { return direct_; }
  const std::string& temporary_path() const { return file_.path(); }

  // Whatever fails leaves the old file, but for the very last step: the sync of the folder after the rename.
  absl::Status Commit(const WaitForDisk& wait = {});
  void Abort();
  // Removes the temporary's name at once; the rest of Abort happens in the destructor.
  void Discard();

 private:
  absl::Status CreateTemporary(uint32_t mode);
  absl::Status Sync(const WaitForDisk& wait);

  FilePlace place_;
  File file_;
  std::string temporary_;  // its name in the folder
  Durability durability_ = Durability::kPower;
  std::optional<uint32_t> mode_;  // to be set before the rename
  bool direct_ = false;
};

// Ends work that was given up: destroys what it wrote with, on the other thread where there is one. A write or sync that is
// under way takes its time, and so does closing a file without a name, which frees its blocks (50 ms a GiB on ext4).
template <typename Writing>
void LeaveBehind(const WaitForDisk& wait, std::unique_ptr<Writing> writing) {
  if (!wait.on_other_thread) return;
  auto shared = std::make_shared<std::unique_ptr<Writing>>(std::move(writing));
  (void)wait.on_other_thread([shared] { shared->reset(); });  // without a thread: here
}

// Removes what dead writers left in the folder, under whatever name they were writing: files of our temporaries' names that
// nobody holds locked. A lock is seen by one kernel only, so another machine's (or start's) go once they are an hour old, at
// once if they were to become `place`'s file. Errors are ignored.
void RemoveStaleTemporaries(const FilePlace& place);

}  // namespace weft
