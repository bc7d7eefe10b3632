// The order of calls is the point here: data durable before the name changes, the directory after.
#include "serialization/atomic_file.h"

#include <cerrno>

#include "serialization/framing.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// NAME_MAX is 255; prefix, uuid and suffix take 39.
constexpr size_t kLongestStem = 200;

std::string StemOf(const std::string& path) { return absl::StrCat(".", BaseNameOf(path).substr(0, kLongestStem), "."); }
constexpr std::string_view kSuffix = ".tmp";

}  // namespace

absl::StatusOr<AtomicFile> AtomicFile::Create(FileSystem* fs, const std::string& path, const Options& options) {
  if (BaseNameOf(path).empty() || BaseNameOf(path) == "." || BaseNameOf(path) == "..") {
    return UserError("'", path, "' does not name a file");
  }
  AtomicFile result;
  result.path_ = path;
  result.mode_ = options.new_mode;
  FileInfo old;
  const int known = fs->Stat(path.c_str(), &old);
  if (known == 0) {
    if (old.kind == FileKind::kDirectory) return UserError("cannot write '", path, "': it is a directory");
    if (old.kind == FileKind::kSymlink) {
      return UserError("cannot write '", path,
                       "': it is a symbolic link, which the new file would replace; give the path that it leads to");
    }
    if (old.kind != FileKind::kRegular) return UserError("cannot write '", path, "': it is not a regular file");
    result.mode_ = old.mode & 0777;
  } else if (known != -ENOENT) {
    return IoError("inspect", path, known);
  }
  if (options.clean_stale) RemoveStaleTemporaries(fs, path);
  for (int attempt = 0;; ++attempt) {
    const std::string temporary = JoinPath(DirectoryOf(path), absl::StrCat(StemOf(path), ToHex(NewUuid()), kSuffix));
    OpenFlags flags = {.write = true, .create_exclusive = true, .direct = options.direct, .no_follow = true};
    absl::StatusOr<File> file = File::Open(fs, temporary, flags, result.mode_ & 0666);
    if (!file.ok() && options.direct && absl::IsInvalidArgument(file.status())) {
      // Linux creates the file before it finds that the file system has no direct I/O.
      fs->Unlink(temporary.c_str());
      flags.direct = false;
      file = File::Open(fs, temporary, flags, result.mode_ & 0666);
    }
    if (!file.ok()) {
      FileInfo directory;  // a folder that takes no files, /proc say, is not missing
      if (absl::IsNotFound(file.status()) && fs->Stat(DirectoryOf(path).c_str(), &directory) == -ENOENT) {
        return UserErrorOf(absl::StatusCode::kNotFound, "cannot write '", path, "': the directory '", DirectoryOf(path),
                           "' does not exist");
      }
      return std::move(file).status();
    }
    result.direct_ = flags.direct;
    result.file_ = *std::move(file);
    // From the lock on, no cleaner takes this file for a dead writer's. One may have been quicker: then it has no name any more.
    const int locked = fs->Lock(result.file_.fd());
    FileInfo now;
    const bool lost = locked == -EWOULDBLOCK || (fs->StatFd(result.file_.fd(), &now) == 0 && now.links == 0);
    if (!lost || attempt == 8) {
      // Creating took the umask's bits away. A file system without permissions may refuse; that is no reason not to save.
      if (known == 0) (void)result.file_.SetMode(result.mode_);
      return result;
    }
    result.Abort();
  }
}

absl::Status AtomicFile::Commit(Durability durability) {
  const absl::Status status = [&]() -> absl::Status {
    if (durability == Durability::kPower) WEFT_RETURN_IF_ERROR(file_.SyncData());
    FileSystem* fs = file_.fs();
    const int renamed = fs->Rename(file_.path().c_str(), path_.c_str());
    if (renamed < 0) return IoError(absl::StrCat("rename '", file_.path(), "' to"), path_, renamed);
    // Renamed: from here on there is no temporary to remove. The lock stays until here so that no cleaner interferes.
    File done = std::move(file_);
    WEFT_RETURN_IF_ERROR(done.Close());
    if (durability == Durability::kPower) return SyncDirectory(fs, DirectoryOf(path_));
    return absl::OkStatus();
  }();
  if (!status.ok()) Abort();
  return status;
}

void AtomicFile::Abort() {
  if (!file_.is_open()) return;
  file_.fs()->Unlink(file_.path().c_str());
  (void)file_.Close();
}

void RemoveStaleTemporaries(FileSystem* fs, const std::string& path) {
  const std::string directory = DirectoryOf(path);
  const std::string stem = StemOf(path);
  std::vector<std::string> names;
  if (fs->List(directory.c_str(), &names) < 0) return;
  for (const std::string& name : names) {
    if (name.size() != stem.size() + 32 + kSuffix.size() || !name.starts_with(stem) || !name.ends_with(kSuffix))
      continue;
    const std::string full = JoinPath(directory, name);
    absl::StatusOr<File> file = File::Open(fs, full, {.write = true, .no_follow = true});
    if (file.ok() && fs->Lock(file->fd()) == 0) fs->Unlink(full.c_str());
  }
}

}  // namespace weft
