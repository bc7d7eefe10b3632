// Where processes of several hosts find each other: rank 0 listens at an address that all know; the others knock, say who they are, and
// hear where everybody is. Then each pair has a connection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/distributed/local_door.h"

namespace weft::distributed {

struct TcpOptions {
  std::string host;  // of rank 0: a name or an address
  int port = 0;
  std::string token;  // a process without it is sent away; at most 256 bytes. It travels as it is
  int rank = 0;
  int size = 1;
  Patience patience;  // for all to come
};

// The connections of one member.
struct TcpConnections {
  std::vector<OwnedFd> control;     // by rank: rank 0 has one to each of the others, these have one to rank 0
  std::vector<OwnedFd> data;        // by rank, none to itself
  std::vector<std::string> labels;  // by rank: "process 4711 on host"
};

// Waits until all have come. Sockets do not block, and are closed when a program is executed.
//   INVALID_ARGUMENT     a rank that is not below the size, an address that is none
//   ALREADY_EXISTS       somebody else has this rank, or listens at rank 0's port
//   FAILED_PRECONDITION  members disagree on the size
//   PERMISSION_DENIED    another token
//   DEADLINE_EXCEEDED    names the ranks that have not come, or where rank 0 was looked for
//   CANCELLED            likewise: the patience's token ended the wait
//   UNAVAILABLE          a member went away while all joined
absl::StatusOr<TcpConnections> ConnectByTcp(const TcpOptions& options);

// Sends or receives exactly so many bytes; false if that cannot be.
bool SendAll(int fd, const void* data, size_t bytes, const Patience& patience);
bool ReceiveAll(int fd, void* data, size_t bytes, const Patience& patience);

}  // namespace weft::distributed
