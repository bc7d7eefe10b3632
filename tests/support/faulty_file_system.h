// A FileSystem that passes calls on until the N-th, which fails, is shortened or is interrupted: for walking through every
// point where storage can go wrong.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "src/runtime/io.h"
#include "tests/support/fault_ledger.h"

namespace weft::testing {

class FaultyFileSystem final : public FileSystem {
 public:
  enum class Fault { kNone, kOnce, kForever, kShort };

  // From here on: call number `n` (1 = the next) fails with `error`; with kForever all after it too; with kShort transfers
  // from the n-th on are cut to half (at least one byte) and every other call is interrupted once.
  void Arm(int64_t n, int error, Fault fault) {
    calls_ = 0;
    at_ = n;
    error_ = error;
    fault_ = fault;
    hit_ = false;
    what_.clear();
  }
  // The ledger's name for what is done, beside the test's.
  void In(std::string scenario) { scenario_ = std::move(scenario); }
  void Disarm() { fault_ = Fault::kNone; }
  // From here on every call of this name, a constant, takes so much longer.
  void Slow(const char* what, std::chrono::milliseconds by) {
    slower_ = by;
    slow_ = what;
  }
  int64_t calls() const { return calls_; }
  bool hit() const { return hit_; }
  const std::string& failed_call() const { return what_; }

  int Open(int d, const char* p, OpenFlags f, uint32_t m) override { return Gate("open", [&] { return base_->Open(d, p, f, m); }); }
  int Close(int fd) override {
    // A descriptor is gone even if close fails.
    const int real = base_->Close(fd);
    return Gate("close", [&] { return real; });
  }
  int64_t Read(int fd, void* d, size_t n) override { return Transfer("read", n, [&](size_t k) { return base_->Read(fd, d, k); }); }
  int64_t ReadAt(int fd, void* d, size_t n, int64_t o) override {
    return Transfer("pread", n, [&](size_t k) { return base_->ReadAt(fd, d, k, o); });
  }
  int64_t Write(int fd, const void* d, size_t n) override {
    return Transfer("write", n, [&](size_t k) { return base_->Write(fd, d, k); });
  }
  int64_t WriteAt(int fd, const void* d, size_t n, int64_t o) override {
    return Transfer("pwrite", n, [&](size_t k) { return base_->WriteAt(fd, d, k, o); });
  }
  int WaitReady(int fd, bool w) override { return Gate("poll", [&] { return base_->WaitReady(fd, w); }); }
  int Prefetch(int fd, int64_t o, int64_t n) override { return base_->Prefetch(fd, o, n); }  // cannot fail in a way that matters
  int SyncData(int fd) override { return Gate("fdatasync", [&] { return base_->SyncData(fd); }); }
  int SyncAll(int fd) override { return Gate("fsync", [&] { return base_->SyncAll(fd); }); }
  int Allocate(int fd, int64_t n) override { return Gate("fallocate", [&] { return base_->Allocate(fd, n); }); }
  int Truncate(int fd, int64_t n) override { return Gate("ftruncate", [&] { return base_->Truncate(fd, n); }); }
  int SetMode(int fd, uint32_t m) override { return Gate("fchmod", [&] { return base_->SetMode(fd, m); }); }
  int SetDirect(int fd, bool on) override { return Gate("fcntl", [&] { return base_->SetDirect(fd, on); }); }
  int Flush(int fd) override { return Gate("flush", [&] { return base_->Flush(fd); }); }
  int LockByte(int fd, int64_t at, bool on) override {
    return on ? Gate("ofd lock", [&] { return base_->LockByte(fd, at, on); }) : base_->LockByte(fd, at, on);
  }
  int Unlock(int fd) override { return base_->Unlock(fd); }  // what it would leave locked, closing lets go
  int Lock(int fd) override { return Gate("flock", [&] { return base_->Lock(fd); }); }
  int StatFd(int fd, FileInfo* i) override { return Gate("fstat", [&] { return base_->StatFd(fd, i); }); }
  int Stat(int d, const char* p, FileInfo* i) override { return Gate("stat", [&] { return base_->Stat(d, p, i); }); }
  int Rename(int d, const char* a, const char* b) override { return Gate("rename", [&] { return base_->Rename(d, a, b); }); }
  int Unlink(int d, const char* p) override { return Gate("unlink", [&] { return base_->Unlink(d, p); }); }
  int MakeDirectory(int d, const char* p, uint32_t m) override { return Gate("mkdir", [&] { return base_->MakeDirectory(d, p, m); }); }
  int Touch(int d, const char* p) override { return Gate("utimensat", [&] { return base_->Touch(d, p); }); }
  int List(int d, const char* p, std::vector<std::string>* n) override { return Gate("readdir", [&] { return base_->List(d, p, n); }); }
  void* Map(int fd, size_t n, int* error) override {
    *error = Next("mmap");
    return *error != 0 ? nullptr : base_->Map(fd, n, error);
  }
  void Unmap(void* memory, size_t n) override { base_->Unmap(memory, n); }
  int64_t TypeOf(int fd) override {
    const int error = Next("fstatfs");
    return error != 0 ? error : base_->TypeOf(fd);
  }

 private:
  // 0: go on; otherwise the error to return.
  int Next(const char* what) {
    const int64_t n = ++calls_;
    const char* const slow = slow_;
    if (slow != nullptr && std::strcmp(what, slow) == 0) std::this_thread::sleep_for(slower_);
    if (fault_ == Fault::kNone || fault_ == Fault::kShort || n < at_ || (fault_ == Fault::kOnce && n > at_)) return 0;
    hit_ = true;
    if (what_.empty()) {
      what_ = what;
      FaultLedger::Note(scenario_, n, what, error_, fault_ == Fault::kOnce ? "once" : "for ever");
    }
    return -error_;
  }
  template <typename Call>
  int Gate(const char* what, Call&& call) {
    const int error = Next(what);
    return error != 0 ? error : call();
  }
  template <typename Call>
  int64_t Transfer(const char* what, size_t bytes, Call&& call) {
    const int error = Next(what);
    if (error != 0) return error;
    if (fault_ == Fault::kShort && calls_ >= at_) {
      hit_ = true;
      FaultLedger::Note(scenario_, calls_, what, calls_ % 2 == 0 ? EINTR : 0, "short");
      if (calls_ % 2 == 0) return -EINTR;
      return call(bytes > 1 ? bytes / 2 : bytes);
    }
    return call(bytes);
  }

  FileSystem* base_ = PosixFileSystem();
  std::atomic<int64_t> calls_{0};
  int64_t at_ = 0;
  int error_ = 0;
  Fault fault_ = Fault::kNone;
  std::atomic<bool> hit_{false};
  std::atomic<const char*> slow_{nullptr};
  std::chrono::milliseconds slower_{0};
  std::string scenario_;
  std::string what_;  // written by the one call that fails first; read after the operation has ended
};

}  // namespace weft::testing
