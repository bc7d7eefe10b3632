// Where processes of one host find each other: rank 0 opens a door (an abstract Unix socket), the others knock, say who they are,
// and get a file descriptor.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"

#include "src/distributed/shared_memory.h"

namespace weft::distributed {

// A file descriptor that is closed.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();
  int get() const { return fd_; }
  int Release();

 private:
  int fd_;
};

// Tells whether something can be read, or written, before the deadline (events: POLLIN, POLLOUT).
bool Ready(int fd, short events, int64_t deadline_ns);
inline bool Readable(int fd, int64_t deadline_ns) { return Ready(fd, POLLIN, deadline_ns); }

// Rank 0: gives `memory` to each of the other ranks, once; returns when all have it. A process with another token, or
// with a rank that has come, is sent away with a text. `came` hears of each rank, with the number of its process in
// this one's namespace, or 0.
absl::Status HandOut(const SharedMemoryOptions& options, int memory,
                     absl::FunctionRef<void(int rank, pid_t process)> came);
// The others.
absl::StatusOr<OwnedFd> Fetch(const SharedMemoryOptions& options);

}  // namespace weft::distributed
