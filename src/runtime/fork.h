// fork() copies a process without its threads. The one place that notices: who has started threads asks here whether they
// are still there.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// How many forks lie between the process and its first ancestor that asked: what was started under another number has no
// threads here. One relaxed load.
uint64_t ForkGeneration();

// For an object that starts threads. Thread rule: any thread.
class ForkGuard {
 public:
  // Threads have been started, or somebody may be waiting for some: from now on a fork's child must not.
  void Started();
  bool Forked() const {
    const uint64_t generation = generation_.load(std::memory_order_relaxed);
    return generation != 0 && generation != ForkGeneration() + 1;
  }
  // FAILED_PRECONDITION in the child.
  absl::Status Check() const;

 private:
  std::atomic<uint64_t> generation_{0};  // one more than it was; 0: nothing has been started
};

}  // namespace weft
