// See cache_claims.h.
#include "serialization/cache_claims.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace weft {
namespace {

// Another process that compiles the same program is waited for, but one that was stopped not for ever.
constexpr std::chrono::seconds kLongestWait{30};

// The byte of the file "claims" that stands for a key; a lock's range ends at 2^63 - 1.
int64_t ByteOf(const Hash128& key) { return static_cast<int64_t>(key.low >> 2); }

}  // namespace

bool CacheClaims::Take(const std::string& root, const Hash128& key) {
  {
    MutexLock lock(mutex_);
    if (process_ != getpid()) held_.clear();  // the parent's; its locks are not ours to give back
    process_ = getpid();
    if (std::ranges::find(held_, key, &Held::key) != held_.end()) return false;
  }
  absl::StatusOr<File> file =
      File::Open(fs_, JoinPath(root, "claims"), {.read = true, .write = true, .create = true, .no_follow = true});
  if (!file.ok()) return false;
  const auto start = std::chrono::steady_clock::now();
  for (std::chrono::milliseconds pause{1};; pause = std::min(pause * 2, std::chrono::milliseconds(20))) {
    const int result = fs_->LockByte(file->fd(), ByteOf(key), true);
    if (result == 0) break;
    const bool held = result == -EAGAIN || result == -EACCES || result == -EINTR;
    if (!held || std::chrono::steady_clock::now() - start > kLongestWait) return false;
    std::this_thread::sleep_for(pause);
  }
  MutexLock lock(mutex_);
  held_.push_back({.key = key, .file = *std::move(file)});
  return true;
}

void CacheClaims::Publishing(const Hash128& key) {
  MutexLock lock(mutex_);
  for (Held& held : held_) held.publishing = held.publishing || held.key == key;
}

void CacheClaims::End(const Hash128& key, bool published) {
  File file;
  {
    MutexLock lock(mutex_);
    const auto held =
        std::ranges::find_if(held_, [&](const Held& h) { return h.key == key && h.publishing == published; });
    if (held == held_.end() || process_ != getpid()) return;
    file = std::move(held->file);
    held_.erase(held);
  }
  fs_->LockByte(file.fd(), ByteOf(key), false);  // a fork's child may have the descriptor, too
}

}  // namespace weft
