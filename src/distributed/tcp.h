// Groups whose members are processes of several hosts: the calls of board.h, each member with a board of its own. Rank 0 says which phases
// have ended and what the group is poisoned with, so that all agree; large buffers go from member to member.
#pragma once

#include <memory>

#include "src/distributed/communicator.h"
#include "src/distributed/tcp_door.h"

namespace weft::distributed {

// Waits until all members have come; errors of ConnectByTcp. Starts one thread, which serves the connections. Bytes travel as they are,
// neither encrypted nor signed: the hosts' network must be trusted. Numbers must be little-endian on all hosts.
// A member whose process ends ends the group for all that wait as soon as its host says so (UNAVAILABLE, with its rank); one whose host is
// gone within half a minute, or at the deadline.
absl::StatusOr<std::unique_ptr<Communicator>> JoinTcpGroup(const TcpOptions& options);

}  // namespace weft::distributed
