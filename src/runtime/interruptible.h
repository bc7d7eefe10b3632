// Long work on files that its caller may give up: File asks between pieces of a read, hashing between checksums.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace weft {

// While it lives, what this thread reads and hashes ends with the error that `look` gives. The innermost counts. Other threads
// that help are not asked: the part that fails here ends theirs.
class Interruptible {
 public:
  using Look = std::function<absl::Status()>;
  explicit Interruptible(Look look) : look_(std::move(look)), around_(std::exchange(current_, this)) {}
  ~Interruptible() { current_ = around_; }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  static absl::Status Check() { return current_ != nullptr ? current_->look_() : absl::OkStatus(); }

 private:
  static thread_local constinit Interruptible* current_;
  const Look look_;
  Interruptible* const around_;
};

}  // namespace weft
