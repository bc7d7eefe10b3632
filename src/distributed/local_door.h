// Where processes of one host find each other: rank 0 opens a door (an abstract Unix socket), the others knock, say who they are,
// and get a file descriptor.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

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

// An abstract address of this host: no file.
struct LocalAddress {
  sockaddr_un address = {};
  socklen_t length = 0;
};
LocalAddress LocalAddressOf(std::string_view name);

// Tells whether the wait is to end now.
bool Ends(const Patience& patience);
// The same patience, or less: so long from now.
Patience AtMost(const Patience& patience, int64_t ns);
// A little more, so that somebody who sees more gives up first.
Patience AndThen(const Patience& patience, int64_t ns);
// The error of a wait that ended: what did not happen before its deadline, or before somebody cancelled it.
absl::Status GaveUp(const Patience& patience, std::string_view what, std::string_view more = "");

// Tells whether something can be read, or written, before the patience ends (events: POLLIN, POLLOUT).
bool Ready(int fd, short events, const Patience& patience);
inline bool Readable(int fd, const Patience& patience) { return Ready(fd, POLLIN, patience); }
// How often rank 0, which waits for others to come, looks whether those who came are still there.
inline constexpr int64_t kDoorLookNs = 50'000'000;

// Rank 0 tells this of the others who come, and asks it of its wait.
struct DoorKeeper {
  // Hears of each rank, with the number of its process in this one's namespace, or 0.
  absl::FunctionRef<void(int rank, pid_t process)> came;
  // Asked now and then: OK, or why there is no use in waiting for more.
  absl::FunctionRef<absl::Status()> look;
};
// Rank 0: gives `memory` to each of the other ranks, once; returns when all have it. A process with another token, or
// with a rank that has come, is sent away with a text.
absl::Status HandOut(const SharedMemoryOptions& options, int memory, const DoorKeeper& keeper);
// The others.
absl::StatusOr<OwnedFd> Fetch(const SharedMemoryOptions& options);

}  // namespace weft::distributed
