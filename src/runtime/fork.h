// fork() copies a process without its threads. The one place that notices: code that has started threads asks here
// whether they are still there.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "src/runtime/mutex.h"

namespace weft {

// How many forks lie between the process and its first ancestor that asked: what was started under another number has no
// threads here. One relaxed load.
uint64_t ForkGeneration();

// Tells whether this process is a forked child: rarely. One inlined load, for checks in every call.
extern constinit std::atomic<uint64_t> g_fork_generation;
inline bool IsForked() { return g_fork_generation.load(std::memory_order_relaxed) != 0; }

// In which order fork takes the locks of the whole process: a holder of one takes only those behind it.
enum class ForkOrder : uint8_t { kFirst, kThen, kLater, kLast };
// fork takes this lock before it copies the process and lets go of it on both sides, so that the child finds it free and what
// it guards whole. For locks of process-wide tables that are held for a moment; the lock must last as long as the process.
void HoldOverFork(Mutex& mutex, ForkOrder order);

// Guards an object that starts threads. Thread rule: any thread.
class ForkGuard {
 public:
  // Threads have been started, or locks may be held: from now on a fork's child must not wait for them.
  void Started() {
    if (generation_.load(std::memory_order_relaxed) == 0) StartedNow();
  }
  bool Forked() const {
    const uint64_t generation = generation_.load(std::memory_order_relaxed);
    return generation != 0 && generation != ForkGeneration() + 1;
  }
  // FAILED_PRECONDITION in the child.
  absl::Status Check() const;
  static absl::Status Refusal();

 private:
  void StartedNow();
  std::atomic<uint64_t> generation_{0};  // one more than it was; 0: nothing has been started
};

}  // namespace weft
