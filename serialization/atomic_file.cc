// The order of calls is the point here: data durable before the name changes, the directory after.
#include "serialization/atomic_file.h"

#include <cerrno>
#include <chrono>
#include <memory>
#include <new>

#include "serialization/checksum.h"
#include "serialization/framing.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// A temporary is called "." + name + "." + 32 hex digits + ".weft.tmp"; the first 16 digits say which start of which machine
// made it. NAME_MAX is 255.
constexpr size_t kLongestStem = 200;
constexpr std::string_view kSuffix = ".weft.tmp";
constexpr size_t kHexDigits = 32;
constexpr int64_t kHourNs = int64_t{3600} * 1'000'000'000;

std::string StemOf(std::string_view name) { return absl::StrCat(".", name.substr(0, kLongestStem), "."); }

// Names the running kernel, which all processes that see each other's locks have in common. Empty if that cannot be told.
const std::string& BootTag() {
  static const std::string& tag = *new std::string([] {
    absl::StatusOr<File> file = File::Open(PosixFileSystem(), "/proc/sys/kernel/random/boot_id", {.read = true});
    std::byte id[36];
    if (!file.ok() || !file->ReadAt(0, id).ok()) return std::string();
    return absl::StrCat(absl::Hex(Checksum64(id), absl::kZeroPad16));
  }());
  return tag;
}

std::string NewTemporaryName(std::string_view name) {
  const std::string random = ToHex(NewUuid());
  const std::string& boot = BootTag();
  const std::string_view first = boot.empty() ? std::string_view(random).substr(16) : std::string_view(boot);
  return absl::StrCat(StemOf(name), first, std::string_view(random).substr(0, 16), kSuffix);
}

bool IsHex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

// The digits of a temporary's name, or nothing.
std::string_view DigitsOf(std::string_view file, std::string_view suffix) {
  if (!file.starts_with('.') || !file.ends_with(suffix)) return {};
  file.remove_suffix(suffix.size());
  if (file.size() < kHexDigits + 2 || file[file.size() - kHexDigits - 1] != '.') return {};
  const std::string_view digits = file.substr(file.size() - kHexDigits);
  return IsHex(digits) ? digits : std::string_view();
}

void RemoveIfDead(const File& folder, const std::string& name, int64_t at_least_ns) {
  // A file that may not be written to can be locked as well, if not on every network.
  absl::StatusOr<File> file = File::OpenIn(folder, name, {.write = true, .no_follow = true});
  if (absl::IsPermissionDenied(file.status())) {
    file = File::OpenIn(folder, name, {.read = true, .no_follow = true});
  }
  if (!file.ok()) return;
  FileInfo info;
  FileSystem* fs = folder.fs();
  if (fs->StatFd(file->fd(), &info) < 0 || info.kind != FileKind::kRegular) return;
  if (at_least_ns > 0 && UnixNow() - info.modified_ns < at_least_ns) return;
  if (fs->Lock(file->fd()) == 0) fs->Unlink(folder.fd(), name.c_str());
}

}  // namespace

absl::StatusOr<FilePlace> FilePlace::Find(FileSystem* fs, const std::string& path) {
  FilePlace place;
  place.path = path;
  place.name = BaseNameOf(path);
  if (place.name.empty() || place.name == "." || place.name == "..") {
    return UserError("'", path, "' does not name a file");
  }
  const std::string directory = DirectoryOf(path);
  absl::StatusOr<File> folder = File::Open(fs, directory, {.read = true, .directory = true});
  if (absl::IsPermissionDenied(folder.status())) {
    place.readable = false;
    folder = File::Open(fs, directory, {.directory = true, .place_only = true});
  }
  if (!folder.ok()) {
    FileInfo info;
    if (absl::IsNotFound(folder.status()) && fs->Stat(FileSystem::kHere, directory.c_str(), &info) == -ENOENT) {
      return UserErrorOf(absl::StatusCode::kNotFound, "cannot write '", path, "': the directory '", directory,
                         "' does not exist");
    }
    return absl::Status(folder.status().code(), absl::StrCat("cannot write '", path, "': ", folder.status().message()));
  }
  place.folder = *std::move(folder);
  return place;
}

absl::StatusOr<AtomicFile> AtomicFile::Create(FileSystem* fs, const std::string& path, const Options& options) {
  WEFT_ASSIGN_OR_RETURN(FilePlace place, FilePlace::Find(fs, path));
  return Create(std::move(place), options);
}

absl::StatusOr<AtomicFile> AtomicFile::Create(FilePlace place, const Options& options) {
  const std::string path = place.path;
  FileSystem* fs = place.folder.fs();
  if (options.durability == Durability::kPower && !place.readable) {
    return UserErrorOf(absl::StatusCode::kPermissionDenied, "cannot write '", path,
                       "' so that it survives a loss of power: the directory '", place.folder.path(),
                       "' may not be read, which making a name in it durable takes");
  }
  AtomicFile result;
  result.durability_ = options.durability;
  result.direct_ = options.direct;
  FileInfo old;
  const int known = fs->Stat(place.folder.fd(), place.name.c_str(), &old);
  if (known == 0) {
    if (old.kind == FileKind::kDirectory) return UserError("cannot write '", path, "': it is a directory");
    if (!options.replace_any) {
      if (old.kind == FileKind::kSymlink) {
        return UserError("cannot write '", path,
                         "': it is a symbolic link, which the new file would replace; give the path that it leads to");
      }
      if (old.kind != FileKind::kRegular) return UserError("cannot write '", path, "': it is not a regular file");
      result.mode_ = old.mode & 0777;
    }
  } else if (known != -ENOENT) {
    return IoError("inspect", path, known);
  }
  if (options.clean_stale) RemoveStaleTemporaries(place);
  result.place_ = std::move(place);
  // A temporary that replaces a file may get permissions by which its owner could not clean it up. It gets them last.
  WEFT_RETURN_IF_ERROR(result.CreateTemporary(result.mode_.has_value() ? 0600 : options.new_mode & 0666));
  return result;
}

absl::Status AtomicFile::CreateTemporary(uint32_t mode) {
  FileSystem* fs = place_.folder.fs();
  for (int attempt = 0;; ++attempt) {
    temporary_ = NewTemporaryName(place_.name);
    OpenFlags flags = {.write = true, .create_exclusive = true, .direct = direct_, .no_follow = true};
    absl::StatusOr<File> file = File::OpenIn(place_.folder, temporary_, flags, mode);
    if (!file.ok() && direct_ && absl::IsInvalidArgument(file.status())) {
      // Linux creates the file before it finds that the file system has no direct I/O.
      fs->Unlink(place_.folder.fd(), temporary_.c_str());
      flags.direct = direct_ = false;
      file = File::OpenIn(place_.folder, temporary_, flags, mode);
    }
    if (!file.ok()) return std::move(file).status();
    file_ = *std::move(file);
    // From the lock on, no cleaner takes this file for a dead writer's. One may have been quicker: then it has no name any more.
    const int locked = fs->Lock(file_.fd());
    FileInfo now;
    const bool lost = locked == -EWOULDBLOCK || (fs->StatFd(file_.fd(), &now) == 0 && now.links == 0);
    if (!lost || attempt == 8) return absl::OkStatus();
    Abort();
  }
}

// A caller that gives up leaves the sync to the other thread: the temporary is removed at once, its descriptor is closed when
// the disk is done.
absl::Status AtomicFile::Sync(const WaitForDisk& wait) {
  if (!wait.look || !wait.on_other_thread) return file_.SyncData();
  struct Shared {
    Mutex mutex;
    CondVar changed;
    File file ABSL_GUARDED_BY(mutex);
    absl::Status status ABSL_GUARDED_BY(mutex);
    bool done ABSL_GUARDED_BY(mutex) = false;
  };
  auto shared = std::make_shared<Shared>();
  File syncing = File::Borrow(file_.fs(), file_.fd(), file_.path());
  const absl::Status started = wait.on_other_thread([shared, syncing = std::make_shared<File>(std::move(syncing))] {
    absl::Status status;
    try {
      status = syncing->SyncData();
    } catch (const std::bad_alloc&) {
      status = absl::Status(absl::StatusCode::kResourceExhausted, "");  // a text would need memory
    }
    MutexLock lock(shared->mutex);
    shared->status = std::move(status);
    shared->done = true;
    if (shared->file.is_open()) (void)shared->file.Close();  // nobody waits any more
    shared->changed.NotifyAll();
  });
  if (!started.ok()) return file_.SyncData();
  MutexLock lock(shared->mutex);
  while (!shared->done) {
    shared->changed.WaitUntil(shared->mutex, std::chrono::steady_clock::now() + std::chrono::milliseconds(10));
    if (shared->done) break;
    const absl::Status ended = wait.look();
    if (ended.ok()) continue;
    Discard();
    shared->file = std::move(file_);
    return ended;
  }
  return shared->status;
}

absl::Status AtomicFile::Commit(const WaitForDisk& wait) {
  const absl::Status status = [&]() -> absl::Status {
    FileSystem* fs = file_.fs();
    // Creating took the umask's bits away. A file system without permissions may refuse; that is no reason not to save.
    if (mode_.has_value()) (void)file_.SetMode(*mode_);
    if (durability_ == Durability::kPower) WEFT_RETURN_IF_ERROR(Sync(wait));
    // Flushes now, while the old file is still there: an error that closing would find is found here.
    const int flushed = fs->Flush(file_.fd());
    if (flushed < 0 && flushed != -EINTR) return IoError("close", file_.path(), flushed);
    const int renamed = fs->Rename(place_.folder.fd(), temporary_.c_str(), place_.name.c_str());
    if (renamed < 0) return IoError(absl::StrCat("rename '", file_.path(), "' to"), place_.path, renamed);
    // Renamed: from here on there is no temporary to remove. The lock stays until here so that no cleaner interferes.
    (void)file_.Close();
    if (durability_ == Durability::kPower) return SyncDirectory(place_.folder);
    return absl::OkStatus();
  }();
  if (!status.ok()) Abort();
  return status;
}

void AtomicFile::Discard() {
  if (!file_.is_open() || temporary_.empty()) return;
  file_.fs()->Unlink(place_.folder.fd(), temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::Abort() {
  Discard();
  if (file_.is_open()) (void)file_.Close();
}

void RemoveStaleTemporaries(const FilePlace& place) {
  if (!place.readable) return;
  const std::string stem = StemOf(place.name);
  std::vector<std::string> names;
  if (place.folder.fs()->List(place.folder.fd(), ".", &names) < 0) return;
  for (const std::string& name : names) {
    std::string_view digits = DigitsOf(name, kSuffix);
    const std::string_view before = std::string_view(name).substr(0, stem.size());
    if (digits.empty() && before == stem) digits = DigitsOf(name, ".tmp");  // as earlier versions called them
    if (digits.empty()) continue;
    const bool same_name = before == stem && name.data() + stem.size() == digits.data();
    const bool same_boot = !BootTag().empty() && digits.starts_with(BootTag());
    RemoveIfDead(place.folder, name, same_name || same_boot ? 0 : kHourNs);
  }
}

}  // namespace weft
