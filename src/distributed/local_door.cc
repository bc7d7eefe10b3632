// See local_door.h.
#include "src/distributed/local_door.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_join.h"
#include "src/runtime/clock.h"

namespace weft::distributed {
namespace {

constexpr uint32_t kMagic = 0x57464a31;
constexpr int64_t kHelloNs = 2'000'000'000;  // for one who knocks to say who it is

struct Hello {
  uint32_t magic;
  int32_t rank;
  int32_t size;
  uint32_t token_bytes;
  char token[256];
};

struct Answer {
  uint32_t magic;
  int32_t code;  // 0: the descriptor is beside it
  char text[248];
};

absl::Status SystemError(std::string_view what) {
  return UserErrorOf(absl::StatusCode::kUnavailable, "shared memory group: ", what, ": ", std::strerror(errno));
}

OwnedFd Socket() { return OwnedFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

void Send(int to, absl::StatusCode code, std::string_view text, int memory) {
  Answer answer = {kMagic, static_cast<int32_t>(code), {}};
  text.copy(answer.text, sizeof answer.text - 1);
  iovec part = {&answer, sizeof answer};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (memory >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  // A member that has gone meanwhile will be missed later.
  (void)sendmsg(to, &message, MSG_NOSIGNAL);
}

// No early end: how long it takes says nothing of where the tokens differ.
bool SameToken(const Hello& hello, const std::string& token) {
  if (hello.token_bytes != token.size()) return false;
  unsigned differs = 0;
  for (size_t i = 0; i < token.size(); ++i) differs |= static_cast<unsigned>(hello.token[i] ^ token[i]);
  return differs == 0;
}

std::string Missing(const std::vector<bool>& came) {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < came.size(); ++rank) {
    if (!came[rank]) ranks.push_back(rank);
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// One who knocks. The error is the group's: members that do not agree on how many they are.
absl::Status Admit(const SharedMemoryOptions& options, int memory, int guest, std::vector<bool>& came,
                   absl::FunctionRef<void(int rank, pid_t process)> tell) {
  Hello hello = {};
  ucred who = {};
  socklen_t length = sizeof who;
  if (getsockopt(guest, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return absl::OkStatus();
  if (who.uid != geteuid()) {
    Send(guest, absl::StatusCode::kPermissionDenied, "the group is another user's", -1);
    return absl::OkStatus();
  }
  if (!Readable(guest, AtMost(options.patience, kHelloNs))) return absl::OkStatus();
  if (recv(guest, &hello, sizeof hello, 0) != static_cast<ssize_t>(sizeof hello) || hello.magic != kMagic)
    return absl::OkStatus();
  if (!SameToken(hello, options.token)) {
    Send(guest, absl::StatusCode::kPermissionDenied, "the token is not the one of this job", -1);
    return absl::OkStatus();
  }
  if (hello.size != options.size) {
    const absl::Status why =
        UserErrorOf(absl::StatusCode::kFailedPrecondition, "rank ", hello.rank, " (process ", who.pid,
                    ") says that the group has ", hello.size, " members, rank 0 says ", options.size);
    Send(guest, why.code(), why.message(), -1);
    return why;
  }
  if (came[static_cast<size_t>(hello.rank)]) {
    Send(guest, absl::StatusCode::kAlreadyExists,
         absl::StrCat("another process is rank ", hello.rank, " of this group"), -1);
    return absl::OkStatus();
  }
  came[static_cast<size_t>(hello.rank)] = true;
  tell(hello.rank, who.pid);
  Send(guest, absl::StatusCode::kOk, "", memory);
  return absl::OkStatus();
}

}  // namespace

LocalAddress LocalAddressOf(std::string_view name) {
  LocalAddress result;
  result.address.sun_family = AF_UNIX;
  const std::string path = absl::StrCat("weft/", name);
  const size_t kept = std::min(path.size(), sizeof result.address.sun_path - 1);
  std::memcpy(result.address.sun_path + 1, path.data(), kept);  // behind a zero: no file
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kept);
  return result;
}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}
int OwnedFd::Release() { return std::exchange(fd_, -1); }

bool Ends(const Patience& patience) {
  return (patience.cancel != nullptr && patience.cancel->Ended(patience.began_ns)) ||
         (patience.deadline_ns != INT64_MAX && MonotonicNow() >= patience.deadline_ns);
}
Patience AtMost(const Patience& patience, int64_t ns) {
  Patience less = patience;
  less.deadline_ns = std::min(less.deadline_ns, MonotonicNow() + ns);
  return less;
}
Patience AndThen(const Patience& patience, int64_t ns) {
  Patience more = patience;
  more.deadline_ns = more.deadline_ns > INT64_MAX - ns ? INT64_MAX : more.deadline_ns + ns;
  return more;
}
absl::Status GaveUp(const Patience& patience, std::string_view what, std::string_view more) {
  const bool cancelled = patience.cancel != nullptr && patience.cancel->Ended(patience.began_ns);
  return UserErrorOf(cancelled ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded, what,
                     cancelled ? " before weft_cancel ended the wait" : " before the deadline", more);
}

bool Ready(int fd, short events, const Patience& patience) {
  const int64_t most_ms = patience.cancel != nullptr ? 10 : 60'000;
  for (;;) {
    const int64_t left = patience.deadline_ns == INT64_MAX ? INT64_MAX / 2 : patience.deadline_ns - MonotonicNow();
    pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>((left + 999'999) / 1'000'000, 0, most_ms)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (Ends(patience)) return false;
  }
}

absl::Status HandOut(const SharedMemoryOptions& options, int memory, const DoorKeeper& keeper) {
  const OwnedFd door = Socket();
  const LocalAddress address = LocalAddressOf(options.name);
  if (door.get() < 0) return SystemError("no socket can be made");
  if (bind(door.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) {
    if (errno != EADDRINUSE) return SystemError("the address cannot be had");
    return UserErrorOf(absl::StatusCode::kAlreadyExists, "another process is rank 0 of this group");
  }
  if (listen(door.get(), 1024) != 0) return SystemError("nobody can be listened to");
  std::vector<bool> came(static_cast<size_t>(options.size), false);
  came[0] = true;
  while (std::ranges::count(came, false) > 0) {
    if (!Readable(door.get(), AtMost(options.patience, kDoorLookNs))) {
      WEFT_RETURN_IF_ERROR(keeper.look());
      if (!Ends(options.patience)) continue;
      return GaveUp(options.patience, absl::StrCat(Missing(came), " did not come to the group of ", options.size));
    }
    const OwnedFd guest(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (guest.get() < 0) continue;
    WEFT_RETURN_IF_ERROR(Admit(options, memory, guest.get(), came, keeper.came));
  }
  return absl::OkStatus();
}

absl::StatusOr<OwnedFd> Fetch(const SharedMemoryOptions& options) {
  const LocalAddress address = LocalAddressOf(options.name);
  OwnedFd socket;
  for (;;) {
    socket = Socket();
    if (socket.get() < 0) return SystemError("no socket can be made");
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) == 0) break;
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) return SystemError("rank 0 cannot be reached");
    if (Ends(options.patience)) {
      return GaveUp(options.patience, absl::StrCat("rank 0 did not come to the group of ", options.size),
                    absl::StrCat(": nobody listens at the address '", options.name, "' of this host"));
    }
    usleep(2000);
  }
  Hello hello = {kMagic, options.rank, options.size, static_cast<uint32_t>(options.token.size()), {}};
  options.token.copy(hello.token, sizeof hello.token);
  if (send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
    return SystemError("rank 0 does not listen");
  }
  if (!Readable(socket.get(), options.patience)) return GaveUp(options.patience, "rank 0 did not answer");
  Answer answer = {};
  iovec part = {&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  OwnedFd memory;
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message); header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    memory = OwnedFd(fd);
  }
  if (got != static_cast<ssize_t>(sizeof answer) || answer.magic != kMagic) {
    return UserErrorOf(absl::StatusCode::kUnavailable, "rank 0 went away while rank ", options.rank, " joined");
  }
  if (answer.code != 0) {
    answer.text[sizeof answer.text - 1] = '\0';
    return absl::Status(static_cast<absl::StatusCode>(answer.code), answer.text);
  }
  if (memory.get() < 0) return InternalError("rank 0 gave no memory");
  return memory;
}

}  // namespace weft::distributed
