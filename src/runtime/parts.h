// Where the time of a thread goes that computes with a context. Each moment of a caller's thread belongs to one part, so that the
// parts of a loop add up to its time.
#pragma once

#include <cstdint>

#include "src/runtime/clock.h"
#include "src/runtime/metrics.h"

namespace weft {

// In the order of their counters.
enum class Part : uint8_t {
  kRecording,  // all that is none of the others, from the thread's last such part on, the caller's own work included
  kLookingUp,
  kCompiler,
  kRoom,
  kMemory,
  kResults,
  kLaunching,
  kRunning,  // on the caller's thread
  kCopying,
};

// The thread's time until the end of the scope is of this part, but for scopes inside. One of other metrics inside counts for
// nothing: the time stays with the part around it.
class PartScope {
 public:
  PartScope(Metrics& metrics, Part part, int64_t now = MonotonicNow());
  // A thread that is in no part of these metrics, such as a pool's, counts nothing.
  static PartScope Inside(Metrics& metrics, Part part, int64_t now);
  ~PartScope() {
    if (counts_) End(MonotonicNow());
  }
  // Ends it before the scope does.
  void End(int64_t now);
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

  int64_t start() const { return start_; }
  // Nanoseconds in which this thread has run launches so far.
  static int64_t Ran();
  // Records the thread's time from here on in these metrics, if it is in no part.
  static void Begin(const Metrics& metrics);
  // The trace's span of the part that this thread is in ends here and goes on as another, so that the caller's own spans lie between.
  static void SplitSpan(uint64_t metrics);

 private:
  PartScope(Metrics& metrics, Part part, int64_t now, bool inside);

  const int64_t start_;
  Part part_, around_ = Part::kRecording;
  bool counts_ = false;
};

}  // namespace weft
