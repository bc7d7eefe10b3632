// The Posix file system and the loops around it.
#include "src/runtime/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "src/runtime/interruptible.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// Linux transfers at most 0x7ffff000 bytes a call anyway; asking for less keeps the arithmetic far from any edge.
constexpr size_t kLargestTransfer = size_t{1} << 30;
constexpr size_t kReadPiece = 16 << 20;  // between two looks for who gives up: some 10 ms

// A write to a closed pipe or past RLIMIT_FSIZE raises a signal whose default ends the process. A library may not install
// handlers, so the two are blocked around the call and what this call raised is taken back. About 0.3 us a write.
class QuietWrite {
 public:
  QuietWrite() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGPIPE);
    sigaddset(&signals_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    pipe_was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    size_was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  int64_t Finish(int64_t result) {
    const int error = result < 0 ? errno : 0;
    if (error == EPIPE && !pipe_was_pending_) Take(SIGPIPE);
    if (error == EFBIG && !size_was_pending_) Take(SIGXFSZ);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    return result < 0 ? -error : result;
  }

 private:
  static void Take(int signal) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    const timespec now = {0, 0};
    while (sigtimedwait(&one, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  sigset_t signals_, before_;
  bool pipe_was_pending_ = false, size_was_pending_ = false;
};

void Fill(const struct stat& s, FileInfo* info) {
  info->kind = S_ISREG(s.st_mode)                         ? FileKind::kRegular
               : S_ISDIR(s.st_mode)                       ? FileKind::kDirectory
               : S_ISLNK(s.st_mode)                       ? FileKind::kSymlink
               : S_ISFIFO(s.st_mode)                      ? FileKind::kFifo
               : S_ISSOCK(s.st_mode)                      ? FileKind::kSocket
               : S_ISCHR(s.st_mode) || S_ISBLK(s.st_mode) ? FileKind::kDevice
                                                          : FileKind::kOther;
  info->size = s.st_size;
  info->mode = s.st_mode & 07777;
  info->owner = s.st_uid;
  info->links = s.st_nlink;
  info->device = s.st_dev;
  info->inode = s.st_ino;
  info->modified_ns = int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec;
}

int Result(int result) { return result < 0 ? -errno : result; }

class Posix final : public FileSystem {
 public:
  int Open(int folder, const char* path, OpenFlags flags, uint32_t mode) override {
    int bits = O_CLOEXEC | O_NOCTTY;
    bits |= flags.write ? (flags.read ? O_RDWR : O_WRONLY) : O_RDONLY;
    if (flags.create || flags.create_exclusive) bits |= O_CREAT;
    if (flags.create_exclusive) bits |= O_EXCL;
    if (flags.directory) bits |= O_DIRECTORY;
    if (flags.direct) bits |= O_DIRECT;
    if (flags.no_follow) bits |= O_NOFOLLOW;
    if (!flags.directory) bits |= O_NONBLOCK;  // a FIFO in place of a file must not hang the caller; files ignore it
    if (flags.place_only) bits = O_PATH | O_DIRECTORY | O_CLOEXEC;
    return Result(openat(folder, path, bits, static_cast<mode_t>(mode)));
  }
  int Close(int fd) override { return Result(close(fd)); }
  int64_t Read(int fd, void* data, size_t size) override {
    const ssize_t n = read(fd, data, size);
    return n < 0 ? -errno : n;
  }
  int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) override {
    const ssize_t n = pread(fd, data, size, offset);
    return n < 0 ? -errno : n;
  }
  int64_t Write(int fd, const void* data, size_t size) override {
    QuietWrite quiet;
    return quiet.Finish(write(fd, data, size));
  }
  int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) override {
    QuietWrite quiet;
    return quiet.Finish(pwrite(fd, data, size, offset));
  }
  int WaitReady(int fd, bool for_write) override {
    pollfd one = {fd, static_cast<short>(for_write ? POLLOUT : POLLIN), 0};
    return Result(poll(&one, 1, -1));
  }
  int Prefetch(int fd, int64_t offset, int64_t size) override {
    return -posix_fadvise(fd, offset, size, POSIX_FADV_WILLNEED);
  }
  int SyncData(int fd) override { return Result(fdatasync(fd)); }
  int SyncAll(int fd) override { return Result(fsync(fd)); }
  int Allocate(int fd, int64_t size) override {
    QuietWrite quiet;
    return static_cast<int>(quiet.Finish(fallocate(fd, 0, 0, size)));
  }
  int Truncate(int fd, int64_t size) override { return Result(ftruncate(fd, size)); }
  int SetMode(int fd, uint32_t mode) override { return Result(fchmod(fd, mode)); }
  int SetDirect(int fd, bool on) override {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return -errno;
    return Result(fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT));
  }
  int Flush(int fd) override {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy < 0 ? -errno : Result(close(copy));
  }
  int Lock(int fd) override { return Result(flock(fd, LOCK_EX | LOCK_NB)); }
  int Unlock(int fd) override { return Result(flock(fd, LOCK_UN)); }
  int LockByte(int fd, int64_t at, bool on) override {
    // Belongs to the open file, not to the process: other descriptors of this process neither share nor drop it.
    struct flock byte = {};
    byte.l_type = on ? F_WRLCK : F_UNLCK;
    byte.l_whence = SEEK_SET;
    byte.l_start = at;
    byte.l_len = 1;
    return Result(fcntl(fd, F_OFD_SETLK, &byte));
  }
  int StatFd(int fd, FileInfo* info) override {
    struct stat s;
    if (fstat(fd, &s) < 0) return -errno;
    Fill(s, info);
    return 0;
  }
  int Stat(int folder, const char* path, FileInfo* info) override {
    // Not fstatat, which glibc has as a function since 2.33 only.
    struct statx x;
    if (statx(folder, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &x) < 0) return -errno;
    struct stat s = {};
    s.st_mode = x.stx_mode;
    s.st_size = static_cast<off_t>(x.stx_size);
    s.st_uid = x.stx_uid;
    s.st_nlink = x.stx_nlink;
    s.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    s.st_ino = x.stx_ino;
    s.st_mtim = {.tv_sec = x.stx_mtime.tv_sec, .tv_nsec = x.stx_mtime.tv_nsec};
    Fill(s, info);
    return 0;
  }
  int Rename(int folder, const char* from, const char* to) override {
    return Result(renameat(folder, from, folder, to));
  }
  int Unlink(int folder, const char* path) override { return Result(unlinkat(folder, path, 0)); }
  int MakeDirectory(int folder, const char* path, uint32_t mode) override {
    return Result(mkdirat(folder, path, mode));
  }
  int Touch(int folder, const char* path) override {
    return Result(utimensat(folder, path, nullptr, AT_SYMLINK_NOFOLLOW));
  }
  int List(int folder, const char* path, std::vector<std::string>* names) override {
    const int fd = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd), closedir);
    if (directory == nullptr) {
      const int error = errno;
      close(fd);
      return -error;
    }
    names->clear();
    errno = 0;
    while (const dirent* entry = readdir(directory.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names->emplace_back(name);
      errno = 0;
    }
    return -errno;
  }
  void* Map(int fd, size_t size, int* error) override {
    // No page is reserved for a copy of it: most are never written to.
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (memory != MAP_FAILED) return memory;
    *error = -errno;
    return nullptr;
  }
  void Unmap(void* memory, size_t size) override { munmap(memory, size); }
  int64_t TypeOf(int fd) override {
    struct statfs info;
    return fstatfs(fd, &info) == 0 ? static_cast<int64_t>(info.f_type) : -errno;
  }
};

absl::StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS: return absl::StatusCode::kPermissionDenied;
    case EEXIST: return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return absl::StatusCode::kResourceExhausted;
    case EIO: return absl::StatusCode::kDataLoss;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL: return absl::StatusCode::kInvalidArgument;
    default: return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

void* FileSystem::Map(int /*fd*/, size_t /*size*/, int* error) {
  *error = -ENODEV;
  return nullptr;
}
void FileSystem::Unmap(void* /*memory*/, size_t /*size*/) {}
int64_t FileSystem::TypeOf(int /*fd*/) { return -ENOSYS; }

FileSystem* PosixFileSystem() {
  static Posix posix;  // stateless, so it needs no construction and outlives every user
  return &posix;
}

int64_t UnixNow() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string_view NameOf(FileKind kind) {
  switch (kind) {
    case FileKind::kRegular: return "a regular file";
    case FileKind::kDirectory: return "a directory";
    case FileKind::kSymlink: return "a symbolic link";
    case FileKind::kFifo: return "a FIFO";
    case FileKind::kSocket: return "a socket";
    case FileKind::kDevice: return "a device";
    case FileKind::kOther: break;
  }
  return "something else";
}

absl::Status IoError(std::string_view action, std::string_view path, int64_t negative_errno) {
  const int error = static_cast<int>(-negative_errno);
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  return UserErrorOf(CodeOfErrno(error), "cannot ", action, " '", path, "': ", text == nullptr ? "unknown error" : text,
                     " (", name == nullptr ? absl::StrCat("errno ", error) : name, ")");
}

File& File::operator=(File&& other) noexcept {
  std::swap(fs_, other.fs_);
  std::swap(fd_, other.fd_);
  std::swap(owned_, other.owned_);
  std::swap(written_, other.written_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0 && owned_) fs_->Close(fd_);
}

absl::StatusOr<File> File::Open(FileSystem* fs, std::string path, OpenFlags flags, uint32_t mode) {
  const std::string name = path;
  return Open(fs, FileSystem::kHere, name.c_str(), std::move(path), flags, mode);
}

absl::StatusOr<File> File::OpenToRead(FileSystem* fs, std::string path, FileInfo* info) {
  absl::StatusOr<File> file = Open(fs, path, {.read = true});
  // A socket cannot be opened at all.
  if (file.ok()) {
    WEFT_ASSIGN_OR_RETURN(*info, file->Info());
  } else if (path.find('\0') != std::string::npos || fs->Stat(FileSystem::kHere, path.c_str(), info) != 0 ||
             info->kind != FileKind::kSocket) {
    return file;
  }
  if (info->kind != FileKind::kRegular)
    return UserError("'", path, "' is ", NameOf(info->kind), ", not a regular file");
  return file;
}

absl::StatusOr<File> File::OpenIn(const File& folder, const std::string& name, OpenFlags flags, uint32_t mode) {
  return Open(folder.fs(), folder.fd(), name.c_str(), JoinPath(folder.path(), name), flags, mode);
}

absl::StatusOr<File> File::Open(FileSystem* fs, int folder, const char* name, std::string path, OpenFlags flags,
                                uint32_t mode) {
  if (path.empty()) return UserError("the path of a file is empty");
  if (path.find('\0') != std::string::npos) return UserError("the path of a file holds a NUL byte");
  int fd;
  do {
    fd = fs->Open(folder, name, flags, mode);
  } while (fd == -EINTR);
  if (fd < 0) return IoError(flags.create_exclusive ? "create" : "open", path, fd);
  File file;
  file.fs_ = fs;
  file.fd_ = fd;
  file.owned_ = true;
  file.path_ = std::move(path);
  return file;
}

File File::Borrow(FileSystem* fs, int fd, std::string name) {
  File file;
  file.fs_ = fs;
  file.fd_ = fd;
  file.path_ = std::move(name);
  return file;
}

absl::Status File::Failed(std::string_view action, int64_t negative_errno) const {
  WEFT_RETURN_IF_ERROR(fs_->Why());
  return IoError(action, path_, negative_errno);
}

absl::Status File::ReadAt(int64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    WEFT_RETURN_IF_ERROR(Interruptible::Check());
    const size_t ask = std::min(out.size() - done, kReadPiece);
    const int64_t n = fs_->ReadAt(fd_, out.data() + done, ask, offset + static_cast<int64_t>(done));
    if (n == -EINTR) continue;
    if (n < 0) return Failed(absl::StrCat("read ", out.size(), " bytes at offset ", offset, " of"), n);
    if (n == 0) {
      return UserErrorOf(absl::StatusCode::kDataLoss, "'", path_, "' ends at byte ",
                         offset + static_cast<int64_t>(done), ", but ", out.size(), " bytes were expected at offset ",
                         offset);
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> File::ReadSome(std::span<std::byte> out) {
  for (;;) {
    WEFT_RETURN_IF_ERROR(Interruptible::Check());
    const int64_t n = fs_->Read(fd_, out.data(), std::min(out.size(), kLargestTransfer));
    if (n >= 0) return static_cast<size_t>(n);
    if (n == -EINTR) continue;
    if (n != -EAGAIN) return Failed("read", n);
    const int ready = fs_->WaitReady(fd_, /*for_write=*/false);
    if (ready < 0 && ready != -EINTR) return IoError("wait for input of", path_, ready);
  }
}

absl::Status File::Write(std::span<const std::byte> data) {
  size_t done = 0;
  while (done < data.size()) {
    const int64_t n = fs_->Write(fd_, data.data() + done, std::min(data.size() - done, kLargestTransfer));
    if (n == -EINTR) continue;
    if (n == -EAGAIN) {
      const int ready = fs_->WaitReady(fd_, /*for_write=*/true);
      if (ready < 0 && ready != -EINTR) return IoError("wait for room in", path_, ready);
      continue;
    }
    // A write of 0 bytes happens on no file system that keeps the rules; retrying it for ever would hang.
    if (n <= 0) {
      return Failed(absl::StrCat("write ", data.size(), " bytes at offset ", written_, " of"), n == 0 ? -EIO : n);
    }
    done += static_cast<size_t>(n);
    written_ += n;
  }
  return absl::OkStatus();
}

absl::Status File::WriteAt(int64_t offset, std::span<const std::byte> data) {
  size_t done = 0;
  while (done < data.size()) {
    const int64_t n = fs_->WriteAt(fd_, data.data() + done, std::min(data.size() - done, kLargestTransfer),
                                   offset + static_cast<int64_t>(done));
    if (n == -EINTR) continue;
    if (n <= 0) {
      return IoError(absl::StrCat("write ", data.size(), " bytes at offset ", offset, " of"), path_, n == 0 ? -EIO : n);
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status File::SyncData() {
  // Never repeated after a failure: the kernel has marked the pages clean, and a second call would lie.
  const int result = fs_->SyncData(fd_);
  return result < 0 ? IoError("make durable", path_, result) : absl::OkStatus();
}

absl::Status File::Truncate(int64_t size) {
  int result;
  do {
    result = fs_->Truncate(fd_, size);
  } while (result == -EINTR);
  return result < 0 ? IoError(absl::StrCat("set the length to ", size, " of"), path_, result) : absl::OkStatus();
}

absl::Status File::SetMode(uint32_t mode) {
  const int result = fs_->SetMode(fd_, mode);
  return result < 0 ? IoError("set the permissions of", path_, result) : absl::OkStatus();
}

absl::StatusOr<FileInfo> File::Info() const {
  FileInfo info;
  const int result = fs_->StatFd(fd_, &info);
  if (result < 0) return IoError("inspect", path_, result);
  return info;
}

absl::Status File::Close() {
  if (fd_ < 0) return absl::OkStatus();
  const int fd = std::exchange(fd_, -1);
  if (!owned_) return absl::OkStatus();
  const int result = fs_->Close(fd);
  // After EINTR Linux has closed the descriptor already; a second close could hit somebody else's.
  return result < 0 && result != -EINTR ? IoError("close", path_, result) : absl::OkStatus();
}

std::string DirectoryOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

std::string_view BaseNameOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (directory.empty() || directory.back() == '/') return absl::StrCat(directory, name);
  return absl::StrCat(directory, "/", name);
}

std::string AbsolutePath(std::string_view path) {
  if (path.starts_with('/')) return std::string(path);
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  return error ? std::string(path) : JoinPath(here.native(), path);
}

absl::Status MakeDirectories(FileSystem* fs, const std::string& path, uint32_t mode) {
  if (path.empty()) return UserError("the path of a directory is empty");
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    const int result = fs->MakeDirectory(FileSystem::kHere, part.c_str(), mode);
    // EACCES, EPERM and EROFS of a parent that exists are no reason to stop: the last one decides.
    if (result < 0 && result != -EEXIST && end == std::string::npos) {
      return IoError("create the directory", path, result);
    }
    if (end == std::string::npos) return absl::OkStatus();
  }
}

absl::Status SyncDirectory(const File& directory) {
  const int result = directory.fs()->SyncAll(directory.fd());
  // Some network file systems cannot sync a directory and say EINVAL; there the rename itself is the server's business.
  if (result < 0 && result != -EINVAL) return IoError("make durable the names in", directory.path(), result);
  return absl::OkStatus();
}

}  // namespace weft
