// See limited_files.h.
#include "src/runtime/limited_files.h"

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr std::string_view kDescriptor = "descriptor ";

class Descriptors final : public LimitedFiles {
 public:
  int Open(int, const char* path, OpenFlags flags, uint32_t) override {
    std::string_view name = path;
    if (flags.write || flags.create || !name.starts_with(kDescriptor)) return -ENOENT;
    name.remove_prefix(kDescriptor.size());
    int fd = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), fd);
    if (error != std::errc() || end != name.data() + name.size()) return -ENOENT;
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return own < 0 ? -errno : own;
  }
  int Close(int fd) override { return below_->Close(fd); }
  int64_t Read(int fd, void* data, size_t size) override { return below_->Read(fd, data, size); }
  int64_t ReadAt(int fd, void* data, size_t size, int64_t at) override { return below_->ReadAt(fd, data, size, at); }
  int WaitReady(int fd, bool for_write) override { return below_->WaitReady(fd, for_write); }
  int Prefetch(int fd, int64_t offset, int64_t size) override { return below_->Prefetch(fd, offset, size); }
  int StatFd(int fd, FileInfo* info) override { return below_->StatFd(fd, info); }
  void* Map(int fd, size_t size, int* error) override { return below_->Map(fd, size, error); }
  void Unmap(void* memory, size_t size) override { below_->Unmap(memory, size); }
  int64_t TypeOf(int fd) override { return below_->TypeOf(fd); }

 private:
  FileSystem* const below_ = PosixFileSystem();
};

}  // namespace

int LimitedFiles::Open(int, const char*, OpenFlags, uint32_t) { return -ENOSYS; }
int LimitedFiles::Close(int) { return -ENOSYS; }
int64_t LimitedFiles::Read(int, void*, size_t) { return -ENOSYS; }
int64_t LimitedFiles::ReadAt(int, void*, size_t, int64_t) { return -ENOSYS; }
int64_t LimitedFiles::Write(int, const void*, size_t) { return -ENOSYS; }
int64_t LimitedFiles::WriteAt(int, const void*, size_t, int64_t) { return -ENOSYS; }
int LimitedFiles::WaitReady(int, bool) { return -ENOSYS; }
int LimitedFiles::Prefetch(int, int64_t, int64_t) { return -ENOSYS; }
int LimitedFiles::SyncData(int) { return -ENOSYS; }
int LimitedFiles::SyncAll(int) { return -ENOSYS; }
int LimitedFiles::Allocate(int, int64_t) { return -ENOSYS; }
int LimitedFiles::Truncate(int, int64_t) { return -ENOSYS; }
int LimitedFiles::SetMode(int, uint32_t) { return -ENOSYS; }
int LimitedFiles::SetDirect(int, bool) { return -ENOSYS; }
int LimitedFiles::Flush(int) { return -ENOSYS; }
int LimitedFiles::Lock(int) { return -ENOSYS; }
int LimitedFiles::Unlock(int) { return -ENOSYS; }
int LimitedFiles::LockByte(int, int64_t, bool) { return -ENOSYS; }
int LimitedFiles::StatFd(int, FileInfo*) { return -ENOSYS; }
int LimitedFiles::Stat(int, const char*, FileInfo*) { return -ENOENT; }
int LimitedFiles::Rename(int, const char*, const char*) { return -ENOSYS; }
int LimitedFiles::Unlink(int, const char*) { return -ENOSYS; }
int LimitedFiles::MakeDirectory(int, const char*, uint32_t) { return -ENOSYS; }
int LimitedFiles::Touch(int, const char*) { return -ENOSYS; }
int LimitedFiles::List(int, const char*, std::vector<std::string>*) { return -ENOSYS; }

std::string PathOfDescriptor(int fd) { return absl::StrCat(kDescriptor, fd); }

absl::Status CheckDescriptor(int fd, bool for_write, std::string_view what) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return UserError(what, " is ", fd, ", which is no open descriptor");
  const int mode = flags & O_ACCMODE;
  if ((flags & O_PATH) == 0 && (mode == O_RDWR || mode == (for_write ? O_WRONLY : O_RDONLY))) return absl::OkStatus();
  return UserError(what, " is ", fd, ", which is not open for ", for_write ? "writing" : "reading");
}

FileSystem* DescriptorFiles() {
  static FileSystem* const files = new Descriptors;
  return files;
}

int CallersFile::Open(int, const char* path, OpenFlags flags, uint32_t) {
  return flags.write || flags.create || path != path_ ? -ENOENT : kOnly;
}
int CallersFile::Close(int) { return 0; }
int64_t CallersFile::Read(int fd, void* data, size_t size) {
  const int64_t n = ReadAt(fd, data, size, at_);
  if (n > 0) at_ += n;
  return n;
}
int64_t CallersFile::ReadAt(int, void* data, size_t size, int64_t offset) {
  if (!read_) return -EBADF;
  absl::StatusOr<size_t> given = read_(static_cast<uint64_t>(offset), data, size);
  return given.ok() ? static_cast<int64_t>(*given) : Fail(std::move(given).status());
}
int64_t CallersFile::Write(int, const void* data, size_t size) {
  if (!write_) return -EBADF;
  absl::Status status = write_(data, size);
  return status.ok() ? static_cast<int64_t>(size) : Fail(std::move(status));
}
int64_t CallersFile::Fail(absl::Status status) {
  MutexLock lock(mutex_);
  why_ = std::move(status);
  return -EIO;
}
absl::Status CallersFile::Why() {
  MutexLock lock(mutex_);
  return why_;
}
int CallersFile::Prefetch(int, int64_t, int64_t) { return 0; }
int CallersFile::StatFd(int, FileInfo* info) {
  *info = {.kind = FileKind::kRegular, .size = size_, .mode = 0400, .links = 1};
  return 0;
}

}  // namespace weft
