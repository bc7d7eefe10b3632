// The one door to files. Every file operation of the library is a call of a FileSystem, one virtual function per system
// call, so that a test can fail, shorten or interrupt the N-th call; File adds the loops (short transfers, EINTR, EAGAIN)
// and the error texts that every caller shares. Nothing else in Weft opens, writes or removes a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

enum class FileKind : uint8_t { kRegular, kDirectory, kSymlink, kFifo, kSocket, kDevice, kOther };
// "a directory"
std::string_view NameOf(FileKind kind);

struct FileInfo {
  FileKind kind = FileKind::kOther;
  int64_t size = 0;
  uint32_t mode = 0;  // permission bits, 07777
  uint32_t owner = 0;
  uint64_t links = 0;
  uint64_t device = 0, inode = 0;  // together: which file it is
  int64_t modified_ns = 0;         // since 1970
};

// The purpose for which a file is opened. All are opened close-on-exec; `no_follow` refuses a symbolic link as the last
// component.
struct OpenFlags {
  bool read = false;
  bool write = false;
  bool create_exclusive = false;
  bool create = false;
  bool directory = false;
  bool place_only = false;  // of a directory: a place for names, not to be read or synced; needs no right to read it
  bool direct = false;      // bypass the page cache; buffers, offsets and sizes are then multiples of 4096
  bool no_follow = false;
};

// Results are the system call's own, or -errno. Relative paths begin at `folder`, an open directory, or kHere, the process's
// current directory. Thread rule: any thread; an implementation locks what it shares.
class FileSystem {
 public:
  static constexpr int kHere = -100;  // AT_FDCWD

  virtual ~FileSystem() = default;
  virtual int Open(int folder, const char* path, OpenFlags flags, uint32_t mode) = 0;
  virtual int Close(int fd) = 0;
  virtual int64_t Read(int fd, void* data, size_t size) = 0;
  virtual int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) = 0;
  // Never raises SIGPIPE or SIGXFSZ in the host: these come back as -EPIPE and -EFBIG.
  virtual int64_t Write(int fd, const void* data, size_t size) = 0;
  virtual int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) = 0;
  virtual int WaitReady(int fd, bool for_write) = 0;               // for non-blocking pipes and sockets, after -EAGAIN
  virtual int Prefetch(int fd, int64_t offset, int64_t size) = 0;  // a hint; returns at once
  virtual int SyncData(int fd) = 0;
  virtual int SyncAll(int fd) = 0;  // directories
  virtual int Allocate(int fd, int64_t size) = 0;
  virtual int Truncate(int fd, int64_t size) = 0;
  virtual int SetMode(int fd, uint32_t mode) = 0;
  virtual int SetDirect(int fd, bool on) = 0;
  virtual int Flush(int fd) = 0;  // says what closing it would, and leaves it open: some file systems write no sooner
  virtual int Lock(int fd) = 0;   // exclusive, never waits: -EWOULDBLOCK if another open file holds it
  // Closing lets go too, but not while the child of a fork has a copy of the descriptor.
  virtual int Unlock(int fd) = 0;
  // One byte's lock, as Lock (-EAGAIN or -EACCES if another open file holds it), and letting go of it. Which of a file's
  // bytes stand for what is the caller's business.
  virtual int LockByte(int fd, int64_t at, bool on) = 0;
  virtual int StatFd(int fd, FileInfo* info) = 0;
  virtual int Stat(int folder, const char* path, FileInfo* info) = 0;  // does not follow a symbolic link
  virtual int Rename(int folder, const char* from, const char* to) = 0;
  virtual int Unlink(int folder, const char* path) = 0;
  virtual int MakeDirectory(int folder, const char* path, uint32_t mode) = 0;
  virtual int Touch(int folder, const char* path) = 0;                                  // modification time := now
  virtual int List(int folder, const char* path, std::vector<std::string>* names) = 0;  // without "." and ".."
  // The first `size` bytes as memory that copies a page when it is written to. Null where they cannot be mapped, and why.
  virtual void* Map(int fd, size_t size, int* error);
  virtual void Unmap(void* memory, size_t size);
  virtual int64_t TypeOf(int fd);  // statfs's number of the kind of file system
  // Why reading or writing failed, where a number does not tell it; OK where it does.
  virtual absl::Status Why() { return absl::OkStatus(); }
};

// The operating system's. Lives forever.
FileSystem* PosixFileSystem();

// Nanoseconds since 1970, which files tell their times in.
int64_t UnixNow();

// "cannot rename '/a' to '/b': No space left on device (ENOSPC)" under the code that fits the errno. `negative_errno` as
// FileSystem returns it.
absl::Status IoError(std::string_view action, std::string_view path, int64_t negative_errno);

// An open file. Movable; closing in the destructor ignores errors, so writers call Close. Thread rule: ReadAt and WriteAt
// from any thread, the rest from one thread at a time.
class File {
 public:
  File() = default;
  File(File&& other) noexcept { *this = std::move(other); }
  File& operator=(File&& other) noexcept;
  ~File();

  static absl::StatusOr<File> Open(FileSystem* fs, std::string path, OpenFlags flags, uint32_t mode = 0600);
  // A regular file, to be read. INVALID_ARGUMENT says what is at the path instead: nothing else is read, because devices have no
  // end, and FIFOs and sockets wait for somebody.
  static absl::StatusOr<File> OpenToRead(FileSystem* fs, std::string path, FileInfo* info);
  // A name in an open directory; error texts join the two.
  static absl::StatusOr<File> OpenIn(const File& folder, const std::string& name, OpenFlags flags,
                                     uint32_t mode = 0600);
  // A descriptor that the caller owns and closes; `name` stands in error texts.
  static File Borrow(FileSystem* fs, int fd, std::string name);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  FileSystem* fs() const { return fs_; }

  // Exactly out.size() bytes; a file that ends earlier is DATA_LOSS that names where.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const;
  // Starts reading what a later ReadAt will ask for. Only a hint: it has no errors.
  void Prefetch(int64_t offset, int64_t size) const { fs_->Prefetch(fd_, offset, size); }
  // At least one byte, or 0 at the end of the stream.
  absl::StatusOr<size_t> ReadSome(std::span<std::byte> out);
  absl::Status Write(std::span<const std::byte> data);  // all of it; `written()` counts
  absl::Status WriteAt(int64_t offset, std::span<const std::byte> data);
  int64_t written() const { return written_; }

  absl::Status SyncData();
  absl::Status Truncate(int64_t size);
  absl::Status SetMode(uint32_t mode);
  absl::StatusOr<FileInfo> Info() const;
  absl::Status Close();

 private:
  static absl::StatusOr<File> Open(FileSystem* fs, int folder, const char* name, std::string path, OpenFlags flags,
                                   uint32_t mode);
  absl::Status Failed(std::string_view action, int64_t negative_errno) const;

  FileSystem* fs_ = nullptr;
  int fd_ = -1;
  bool owned_ = false;
  int64_t written_ = 0;
  std::string path_;
};

// "dir/" + name pieces of a path; "." where there is no directory part.
std::string DirectoryOf(std::string_view path);
std::string_view BaseNameOf(std::string_view path);
std::string JoinPath(std::string_view directory, std::string_view name);
// Returns the absolute path that a relative path means now. The path itself if the current directory is gone.
std::string AbsolutePath(std::string_view path);

// Makes the directory and its missing parents. OK if it exists already (as a directory).
absl::Status MakeDirectories(FileSystem* fs, const std::string& path, uint32_t mode);
// Makes the names in a directory durable.
absl::Status SyncDirectory(const File& directory);

}  // namespace weft
