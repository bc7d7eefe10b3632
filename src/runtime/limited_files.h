// File systems that can do little: one whose only files are descriptors of the caller's, and one whose only file is behind
// functions of the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/runtime/io.h"
#include "src/runtime/mutex.h"

namespace weft {

// Everything fails with ENOSYS that a subclass does not do.
class LimitedFiles : public FileSystem {
 public:
  int Open(int, const char*, OpenFlags, uint32_t) override;
  int Close(int) override;
  int64_t Read(int, void*, size_t) override;
  int64_t ReadAt(int, void*, size_t, int64_t) override;
  int64_t Write(int, const void*, size_t) override;
  int64_t WriteAt(int, const void*, size_t, int64_t) override;
  int WaitReady(int, bool) override;
  int Prefetch(int, int64_t, int64_t) override;
  int SyncData(int) override;
  int SyncAll(int) override;
  int Allocate(int, int64_t) override;
  int Truncate(int, int64_t) override;
  int SetMode(int, uint32_t) override;
  int SetDirect(int, bool) override;
  int Flush(int) override;
  int Lock(int) override;
  int Unlock(int) override;
  int LockByte(int, int64_t, bool) override;
  int StatFd(int, FileInfo*) override;
  int Stat(int, const char*, FileInfo*) override;
  int Rename(int, const char*, const char*) override;
  int Unlink(int, const char*) override;
  int MakeDirectory(int, const char*, uint32_t) override;
  int Touch(int, const char*) override;
  int List(int, const char*, std::vector<std::string>*) override;
};

// The path under which DescriptorFiles() opens a descriptor: a duplicate of it, so that its owner may close it.
std::string PathOfDescriptor(int fd);
// INVALID_ARGUMENT unless it is open, and for reading or for writing, as asked. `what` begins the text.
absl::Status CheckDescriptor(int fd, bool for_write, std::string_view what);
// To be read, as PosixFileSystem() reads. Lives forever. Thread rule: any thread.
FileSystem* DescriptorFiles();

// One file, the same whatever it is called. Thread rule: that of the functions.
class CallersFile final : public LimitedFiles {
 public:
  // Gives at most `size` bytes, none at the end.
  using ReadAtFn = std::function<absl::StatusOr<size_t>(uint64_t offset, void* data, size_t size)>;
  using WriteFn = std::function<absl::Status(const void* data, size_t size)>;
  // A file of `size` bytes, or one that is only written, one byte after the other.
  static constexpr int kOnly = 1;  // its descriptor
  CallersFile(std::string path, int64_t size, ReadAtFn read)
      : path_(std::move(path)), size_(size), read_(std::move(read)) {}
  CallersFile(std::string path, WriteFn write) : path_(std::move(path)), write_(std::move(write)) {}

  int Open(int folder, const char* path, OpenFlags flags, uint32_t mode) override;
  int Close(int fd) override;
  int64_t Read(int fd, void* data, size_t size) override;
  int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) override;
  int64_t Write(int fd, const void* data, size_t size) override;
  int Prefetch(int fd, int64_t offset, int64_t size) override;
  int StatFd(int fd, FileInfo* info) override;
  absl::Status Why() override;

 private:
  int64_t Fail(absl::Status status);

  const std::string path_;
  const int64_t size_ = 0;
  int64_t at_ = 0;  // of Read
  const ReadAtFn read_;
  const WriteFn write_;
  Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // the newest failure
};

}  // namespace weft
