// A FileSystem whose only file is a string in memory: half a million damaged files a minute need no disk.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "src/runtime/io.h"

namespace weft::testing {

class OneFile : public FileSystem {
 public:
  std::string bytes;
  int Open(int, const char*, OpenFlags, uint32_t) override { return 3; }
  int Close(int) override { return 0; }
  int64_t Read(int, void* data, size_t size) override {
    const size_t n = std::min(size, bytes.size() - position_);
    std::memcpy(data, bytes.data() + position_, n);
    position_ += n;
    return static_cast<int64_t>(n);
  }
  void Rewind() { position_ = 0; }
  int64_t ReadAt(int, void* data, size_t size, int64_t offset) override {
    const size_t at = static_cast<size_t>(offset);
    if (at >= bytes.size()) return 0;
    const size_t n = std::min(size, bytes.size() - at);
    std::memcpy(data, bytes.data() + at, n);
    return static_cast<int64_t>(n);
  }
  int64_t Write(int, const void*, size_t) override { return -EBADF; }
  int64_t WriteAt(int, const void*, size_t, int64_t) override { return -EBADF; }
  int WaitReady(int, bool) override { return 0; }
  int Prefetch(int, int64_t, int64_t) override { return 0; }
  int SyncData(int) override { return 0; }
  int SyncAll(int) override { return 0; }
  int Allocate(int, int64_t) override { return 0; }
  int Truncate(int, int64_t) override { return 0; }
  int SetMode(int, uint32_t) override { return 0; }
  int SetDirect(int, bool) override { return 0; }
  int Flush(int) override { return 0; }
  int Lock(int) override { return 0; }
  int Unlock(int) override { return 0; }
  int LockByte(int, int64_t, bool) override { return 0; }
  int StatFd(int, FileInfo* info) override {
    info->kind = FileKind::kRegular;
    info->size = static_cast<int64_t>(bytes.size());
    return 0;
  }
  int Stat(int, const char*, FileInfo* info) override { return StatFd(3, info); }
  int Rename(int, const char*, const char*) override { return 0; }
  int Unlink(int, const char*) override { return 0; }
  int MakeDirectory(int, const char*, uint32_t) override { return 0; }
  int Touch(int, const char*) override { return 0; }
  int List(int, const char*, std::vector<std::string>*) override { return 0; }

 protected:
  size_t position_ = 0;
};

}  // namespace weft::testing
