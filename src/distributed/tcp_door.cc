// See tcp_door.h.
#include "src/distributed/tcp_door.h"

#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_join.h"
#include "src/runtime/clock.h"

namespace weft::distributed {
namespace {

constexpr uint32_t kMagic = 0x57465431;
constexpr int64_t kHelloNs = 5'000'000'000;  // for one who knocks to say who it is
constexpr int64_t kRankZeroFirstNs = 400'000'000;
constexpr size_t kMostToken = 256, kLabelBytes = 64;

struct Hello {
  uint32_t magic;
  int32_t rank;
  int32_t size;
  uint32_t token_bytes;
  uint16_t data_port;  // where this member listens to those of higher rank
  char token[kMostToken];
  char label[kLabelBytes];
};
struct Answer {
  uint32_t magic;
  int32_t code;  // 0: one Where a rank comes when all are there
  char text[248];
};
struct Where {
  uint8_t address[16];  // IPv6, or IPv4 mapped into it; of rank 0 zeros: where it was found
  uint16_t port;
  char label[kLabelBytes];
};

absl::Status SystemError(std::string_view what) {
  return UserErrorOf(absl::StatusCode::kUnavailable, "job over TCP: ", what, ": ", std::strerror(errno));
}

std::string OwnLabel() {
  char host[HOST_NAME_MAX + 1] = {};
  (void)gethostname(host, sizeof host - 1);
  return absl::StrCat("process ", getpid(), " on ", host).substr(0, kLabelBytes - 1);
}

// Small messages go at once; a host that is gone is noticed within half a minute.
void Tune(int fd) {
  const int on = 1, idle = 10, interval = 5, count = 4;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

OwnedFd Socket(int family) { return OwnedFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// A socket that listens on all addresses of this host, IPv6 where there is that. `port` 0: any.
absl::StatusOr<OwnedFd> Listen(int port) {
  for (const int family : {AF_INET6, AF_INET}) {
    OwnedFd door = Socket(family);
    if (door.get() < 0) continue;
    const int on = 1, off = 0;
    setsockopt(door.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage address = {};
    socklen_t length = 0;
    if (family == AF_INET6) {
      setsockopt(door.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      auto* const in = reinterpret_cast<sockaddr_in6*>(&address);
      *in = {};
      in->sin6_family = AF_INET6;
      in->sin6_port = htons(static_cast<uint16_t>(port));
      length = sizeof *in;
    } else {
      auto* const in = reinterpret_cast<sockaddr_in*>(&address);
      *in = {};
      in->sin_family = AF_INET;
      in->sin_port = htons(static_cast<uint16_t>(port));
      length = sizeof *in;
    }
    if (bind(door.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 && listen(door.get(), 1024) == 0)
      return door;
    if (errno == EADDRINUSE) {
      return UserErrorOf(
          absl::StatusCode::kAlreadyExists, "port ", port,
          " of this host is taken: another process is rank 0, of this job or of another one, or listens there");
    }
  }
  return SystemError(absl::StrCat("port ", port, " cannot be listened at"));
}

absl::StatusOr<uint16_t> PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return SystemError("a socket has no port");
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
                                       : ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// The address of the other end, in IPv6's form.
bool AddressOfPeer(int fd, uint8_t* to) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  if (address.ss_family == AF_INET6) {
    std::memcpy(to, &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr, 16);
  } else {
    std::memset(to, 0, 10);
    to[10] = to[11] = 0xFF;
    std::memcpy(to + 12, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, 4);
  }
  return true;
}

absl::StatusOr<OwnedFd> Finish(OwnedFd fd, int result, const Patience& patience) {
  int error = result == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t length = sizeof error;
    if (!Ready(fd.get(), POLLOUT, patience)) {
      error = ETIMEDOUT;
    } else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
      error = errno;
    }
  }
  if (error == 0) {
    Tune(fd.get());
    return fd;
  }
  errno = error;
  return SystemError("a connection was refused");
}

absl::StatusOr<OwnedFd> ConnectTo(const sockaddr* address, socklen_t length, const Patience& patience) {
  OwnedFd fd = Socket(address->sa_family);
  if (fd.get() < 0) return SystemError("no socket can be made");
  const int result = connect(fd.get(), address, length);
  return Finish(std::move(fd), result, patience);
}

absl::StatusOr<OwnedFd> ConnectTo(const Where& where, const Patience& patience) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::memcmp(where.address, kMapped, sizeof kMapped) == 0) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(where.port);
    std::memcpy(&in.sin_addr, where.address + 12, 4);
    return ConnectTo(reinterpret_cast<const sockaddr*>(&in), sizeof in, patience);
  }
  sockaddr_in6 in = {};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(where.port);
  std::memcpy(&in.sin6_addr, where.address, 16);
  return ConnectTo(reinterpret_cast<const sockaddr*>(&in), sizeof in, patience);
}

// No early end: how long it takes says nothing of where the tokens differ.
bool SameToken(const Hello& hello, const std::string& token) {
  if (hello.token_bytes != token.size()) return false;
  unsigned differs = 0;
  for (size_t i = 0; i < token.size(); ++i) differs |= static_cast<unsigned>(hello.token[i] ^ token[i]);
  return differs == 0;
}

std::string Missing(const std::vector<OwnedFd>& came) {
  std::vector<size_t> ranks;
  for (size_t rank = 1; rank < came.size(); ++rank) {
    if (came[rank].get() < 0) ranks.push_back(rank);
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

void Send(int to, const absl::Status& status) {
  Answer answer = {kMagic, static_cast<int32_t>(status.code()), {}};
  status.message().copy(answer.text, sizeof answer.text - 1);
  (void)SendAll(to, &answer, sizeof answer, AtMost({}, kHelloNs));
}

Hello HelloOf(const TcpOptions& options, uint16_t port) {
  Hello hello = {};
  hello.magic = kMagic;
  hello.rank = options.rank;
  hello.size = options.size;
  hello.token_bytes = static_cast<uint32_t>(options.token.size());
  hello.data_port = port;
  options.token.copy(hello.token, sizeof hello.token);
  OwnLabel().copy(hello.label, sizeof hello.label - 1);
  return hello;
}

// `look` is asked now and then: OK, or why there is no use in waiting for more.
absl::StatusOr<OwnedFd> Accept(int door, const Patience& patience, const std::string& late,
                               absl::FunctionRef<absl::Status()> look) {
  for (;;) {
    if (!Readable(door, AtMost(patience, kDoorLookNs))) {
      WEFT_RETURN_IF_ERROR(look());
      if (!Ends(patience)) continue;
      return GaveUp(patience, late);
    }
    OwnedFd guest(accept4(door, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (guest.get() < 0) continue;
    Tune(guest.get());
    return guest;
  }
}

// Tells whether the other end of a connection, which says nothing now, is gone.
bool HasGone(int fd) {
  char byte = 0;
  const ssize_t got = recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// OK while all who came are there.
absl::Status WhoWentAway(const TcpConnections& made, const std::vector<Where>& table) {
  for (size_t rank = 1; rank < made.control.size(); ++rank) {
    if (made.control[rank].get() < 0 || !HasGone(made.control[rank].get())) continue;
    return UserErrorOf(absl::StatusCode::kUnavailable, "rank ", rank, " (", table[rank].label,
                       ") went away while all joined");
  }
  return absl::OkStatus();
}

// Rank 0's part: all others come, and hear where all are.
absl::Status Admit(const TcpOptions& options, uint16_t data_port, TcpConnections* made, std::vector<Where>* table) {
  WEFT_ASSIGN_OR_RETURN(const OwnedFd door, Listen(options.port));
  (*table)[0].port = data_port;
  OwnLabel().copy((*table)[0].label, kLabelBytes - 1);
  const auto tell_all = [made](absl::Status why) {
    for (const OwnedFd& other : made->control) {
      if (other.get() >= 0) Send(other.get(), why);
    }
    return why;
  };
  for (int left = options.size - 1; left > 0;) {
    absl::StatusOr<OwnedFd> came =
        Accept(door.get(), options.patience,
               absl::StrCat(Missing(made->control), " did not come to rank 0, which listens at port ", options.port,
                            " for a job of ", options.size),
               [&] { return WhoWentAway(*made, *table); });
    if (!came.ok()) return tell_all(came.status());
    OwnedFd guest = *std::move(came);
    Hello hello = {};
    if (!ReceiveAll(guest.get(), &hello, sizeof hello, AtMost(options.patience, kHelloNs)) || hello.magic != kMagic)
      continue;
    hello.label[kLabelBytes - 1] = '\0';
    if (!SameToken(hello, options.token)) {
      Send(guest.get(), UserErrorOf(absl::StatusCode::kPermissionDenied, "the token is not the one of this job"));
      continue;
    }
    if (hello.size != options.size) {
      const absl::Status why =
          UserErrorOf(absl::StatusCode::kFailedPrecondition, "rank ", hello.rank, " (", hello.label,
                      ") says that the job has ", hello.size, " processes, rank 0 says ", options.size);
      Send(guest.get(), why);
      return tell_all(why);
    }
    if (hello.rank < 1 || hello.rank >= options.size) continue;
    const auto rank = static_cast<size_t>(hello.rank);
    if (made->control[rank].get() >= 0) {
      Send(guest.get(), UserErrorOf(absl::StatusCode::kAlreadyExists, "another process is rank ", hello.rank,
                                    " of this job: ", (*table)[rank].label));
      continue;
    }
    Where& where = (*table)[rank];
    if (!AddressOfPeer(guest.get(), where.address)) continue;
    where.port = hello.data_port;
    std::memcpy(where.label, hello.label, kLabelBytes);
    made->control[rank] = std::move(guest);
    --left;
  }
  for (size_t rank = 1; rank < made->control.size(); ++rank) {
    const int fd = made->control[rank].get();
    const Answer answer = {kMagic, 0, {}};
    if (!SendAll(fd, &answer, sizeof answer, options.patience) ||
        !SendAll(fd, table->data(), table->size() * sizeof(Where), options.patience)) {
      return UserErrorOf(absl::StatusCode::kUnavailable, "rank ", rank, " (", (*table)[rank].label,
                         ") went away while all joined");
    }
  }
  return absl::OkStatus();
}

// The others' part.
absl::Status Knock(const TcpOptions& options, uint16_t data_port, TcpConnections* made, std::vector<Where>* table) {
  const std::string place = absl::StrCat(options.host, ":", options.port);
  std::string last = "it was not tried";
  OwnedFd socket;
  while (socket.get() < 0) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int failed = getaddrinfo(options.host.c_str(), absl::StrCat(options.port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, [](addrinfo* a) {
      if (a != nullptr) freeaddrinfo(a);
    });
    if (failed != 0) last = gai_strerror(failed);
    for (const addrinfo* a = found; a != nullptr && socket.get() < 0; a = a->ai_next) {
      absl::StatusOr<OwnedFd> connected = ConnectTo(a->ai_addr, a->ai_addrlen, AtMost(options.patience, kHelloNs));
      if (connected.ok()) {
        socket = *std::move(connected);
      } else {
        last = std::strerror(errno);
      }
    }
    if (socket.get() >= 0) break;
    if (Ends(options.patience)) {
      return GaveUp(options.patience, absl::StrCat("rank 0 was not found at ", place), absl::StrCat(": ", last));
    }
    usleep(20'000);
  }
  const Hello hello = HelloOf(options, data_port);
  Answer answer = {};
  if (!SendAll(socket.get(), &hello, sizeof hello, options.patience)) return SystemError("rank 0 does not listen");
  // Rank 0 alone sees who has not come, so it is the first to give up.
  const Patience patience = AndThen(options.patience, kRankZeroFirstNs);
  if (!ReceiveAll(socket.get(), &answer, sizeof answer, patience) || answer.magic != kMagic) {
    if (!Ends(patience)) {
      return UserErrorOf(absl::StatusCode::kUnavailable, "rank 0 at ", place, " went away while rank ", options.rank,
                         " joined");
    }
    return GaveUp(patience, absl::StrCat("rank 0 at ", place, " did not answer"), ": others are missing");
  }
  if (answer.code != 0) {
    answer.text[sizeof answer.text - 1] = '\0';
    return absl::Status(static_cast<absl::StatusCode>(answer.code), answer.text);
  }
  if (!ReceiveAll(socket.get(), table->data(), table->size() * sizeof(Where), patience) ||
      !AddressOfPeer(socket.get(), (*table)[0].address)) {
    return UserErrorOf(absl::StatusCode::kUnavailable, "rank 0 at ", place, " went away while rank ", options.rank,
                       " joined");
  }
  made->control[0] = std::move(socket);
  return absl::OkStatus();
}

// A connection for each pair: those of lower rank are called, those of higher rank call.
absl::Status ConnectPairs(const TcpOptions& options, int door, const std::vector<Where>& table, TcpConnections* made) {
  const Hello hello = HelloOf(options, 0);
  for (int rank = 0; rank < options.rank; ++rank) {
    const Where& where = table[static_cast<size_t>(rank)];
    absl::StatusOr<OwnedFd> connected = ConnectTo(where, options.patience);
    if (!connected.ok() || !SendAll(connected->get(), &hello, sizeof hello, options.patience)) {
      return UserErrorOf(absl::StatusCode::kUnavailable, "rank ", rank, " (", where.label,
                         ") cannot be reached at port ", where.port,
                         ", which hosts of a job must let through: ", std::strerror(errno));
    }
    made->data[static_cast<size_t>(rank)] = *std::move(connected);
  }
  for (int left = options.size - 1 - options.rank; left > 0;) {
    WEFT_ASSIGN_OR_RETURN(OwnedFd guest,
                          Accept(door, options.patience, "ranks of this job did not connect to each other",
                                 [] { return absl::OkStatus(); }));
    Hello from = {};
    if (!ReceiveAll(guest.get(), &from, sizeof from, AtMost(options.patience, kHelloNs)) || from.magic != kMagic ||
        !SameToken(from, options.token) || from.rank <= options.rank || from.rank >= options.size ||
        made->data[static_cast<size_t>(from.rank)].get() >= 0) {
      continue;
    }
    made->data[static_cast<size_t>(from.rank)] = std::move(guest);
    --left;
  }
  return absl::OkStatus();
}

}  // namespace

bool SendAll(int fd, const void* data, size_t bytes, const Patience& patience) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (sent < 0 && errno == EAGAIN) {
      if (!Ready(fd, POLLOUT, patience)) return false;
    } else if (sent == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes, const Patience& patience) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got < 0 && errno == EAGAIN) {
      if (!Ready(fd, POLLIN, patience)) return false;
    } else if (got == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<TcpConnections> ConnectByTcp(const TcpOptions& options) {
  if (options.rank < 0 || options.rank >= options.size) {
    return UserError("rank ", options.rank, " is not below the size of the job, ", options.size);
  }
  if (options.token.size() > kMostToken)
    return UserError("the token has ", options.token.size(), " bytes; 256 are the most");
  if (options.host.empty() || options.port < 1 || options.port > 65535) {
    return UserError("'", options.host, ":", options.port,
                     "' is no address of rank 0: a host, and a port from 1 to 65535");
  }
  const auto size = static_cast<size_t>(options.size);
  TcpConnections made;
  made.control.resize(size);
  made.data.resize(size);
  std::vector<Where> table(size);
  WEFT_ASSIGN_OR_RETURN(const OwnedFd door, Listen(0));
  WEFT_ASSIGN_OR_RETURN(const uint16_t port, PortOf(door.get()));
  WEFT_RETURN_IF_ERROR(options.rank == 0 ? Admit(options, port, &made, &table) : Knock(options, port, &made, &table));
  WEFT_RETURN_IF_ERROR(ConnectPairs(options, door.get(), table, &made));
  for (Where& where : table) {
    where.label[kLabelBytes - 1] = '\0';
    made.labels.emplace_back(where.label);
  }
  return made;
}

}  // namespace weft::distributed
