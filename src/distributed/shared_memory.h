// Groups whose members are processes of one host: the calls of board.h in memory that they share (a memfd, which rank 0 makes and
// hands out through a Unix socket). Large buffers go through it a piece at a time.
#pragma once

#include <memory>
#include <string>

#include "src/distributed/communicator.h"

namespace weft::distributed {

struct SharedMemoryOptions {
  // The members find each other by this name: it is the same for all of one group, and that of no
  // other group of this host's network namespace.
  std::string name;
  // A process without it is sent away. At most 256 bytes.
  std::string token;
  int rank = 0;
  int size = 1;
  std::string label;  // shown in errors behind the rank; at most 40 bytes
  Patience patience;  // for all to come
};

// Waits until all members have come. They are of one user; the name is an abstract socket address, so that no file is left behind,
// and the memory goes with the last process that has it. Starts no thread.
//   INVALID_ARGUMENT     a rank that is not below the size
//   ALREADY_EXISTS       somebody else has this rank
//   FAILED_PRECONDITION  members disagree on the size
//   PERMISSION_DENIED    another token, or another user
//   DEADLINE_EXCEEDED    names the ranks that have not come
//   CANCELLED            likewise: the patience's token ended the wait
//   UNAVAILABLE          a member went away while all joined
// A member whose process ends ends the group for all that wait within 0.1 s (UNAVAILABLE, with its rank and process id).
absl::StatusOr<std::unique_ptr<Communicator>> JoinSharedMemoryGroup(const SharedMemoryOptions& options);

}  // namespace weft::distributed
