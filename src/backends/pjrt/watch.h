// Waits no longer for what a plugin's device does not end in time (the option launch_deadline_ms).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "src/runtime/event.h"
#include "src/runtime/fork.h"
#include "src/runtime/ref.h"

namespace weft::pjrt {

// Thread rule: any thread. Nobody can stop a plugin's device: what is given up runs on, and its outcome is dropped.
class Watch {
 public:
  Watch(int64_t deadline_ms, size_t devices);
  ~Watch() { Close(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Completes `to` as `event` was completed, or, if that takes longer than the deadline, with DEADLINE_EXCEEDED; `what` begins its
  // text. A device does one thing after the other: the time counts from when what was watched there before was done or given up.
  // `late` is done when it is given up, and never else.
  void Over(int device, const Ref<Event>& event, std::string what, Ref<Event> to, Ref<Event> late = nullptr);
  // Ends the thread: from now on nothing is given up. Once.
  void Close();
  // Tells whether any work that was given up still runs.
  bool AnyRuns() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // events that are never completed hold it
  ForkGuard fork_;
  std::thread thread_;
};

}  // namespace weft::pjrt
