// See watch.h.
#include "src/distributed/watch.h"

#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "src/distributed/local_door.h"

namespace weft::distributed {

absl::StatusOr<Watch> Watch::Of(std::string_view text) {
  Watch watch;
  const size_t space = text.find(' ');
  int64_t ms = 0;
  if (space == std::string_view::npos || space + 1 == text.size() || !absl::SimpleAtoi(text.substr(0, space), &ms) ||
      ms < 1 || ms > int64_t{1} << 40) {
    return UserError("WEFT_JOB_WATCH is '", text,
                     "'; `weft launch --warn-stuck` sets it to milliseconds and an address");
  }
  watch.after_ns_ = ms * 1'000'000;
  watch.name_ = text.substr(space + 1);
  return watch;
}

void Watch::Tell(std::span<const int> behind, std::string_view text) const {
  const OwnedFd to(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (to.get() < 0) return;
  const LocalAddress address = LocalAddressOf(name_);
  const std::string message = absl::StrCat(absl::StrJoin(behind, " "), "\n", text.substr(0, 2000));
  (void)sendto(to.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address.address), address.length);
}

}  // namespace weft::distributed
