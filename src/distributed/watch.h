// A watch hears of members that wait long for others: it is a launcher's, with an abstract datagram socket whose address its processes have in a
// variable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/runtime/status.h"

namespace weft::distributed {

// Immutable. Thread rule: any. Opens a socket for each message, and none before.
class Watch {
 public:
  Watch() = default;
  // "10000 NAME": after so many milliseconds, to this abstract address. INVALID_ARGUMENT for anything else.
  static absl::StatusOr<Watch> Of(std::string_view text);

  // 0: nobody watches.
  int64_t after_ns() const { return after_ns_; }
  // A line with the ranks that are behind, and a line of text. Never waits; where nobody reads, nothing happens.
  void Tell(std::span<const int> behind, std::string_view text) const;

 private:
  int64_t after_ns_ = 0;
  std::string name_;
};

}  // namespace weft::distributed
