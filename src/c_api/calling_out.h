// Marks what runs of the caller's: hooks, releases, deleters, allocators.
#pragma once

#include "src/runtime/float_environment.h"

namespace weft::c_api {

// A callback may release the context whose call it runs in, or one that waits for this thread in some other way: so nobody
// waits in a callback for calls in progress. It runs in the floating-point environment of whoever called us. Thread rule: one
// thread.
class CallingOut {
 public:
  CallingOut() { ++depth_; }
  ~CallingOut() { --depth_; }
  CallingOut(const CallingOut&) = delete;
  CallingOut& operator=(const CallingOut&) = delete;
  // Tells whether this thread is in a callback.
  static bool Now() { return depth_ != 0; }

 private:
  static constinit thread_local int depth_;
  const CallbackFloats floats_;
};

}  // namespace weft::c_api
