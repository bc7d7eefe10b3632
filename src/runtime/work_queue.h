// Work of one device in order, on a thread of the library's that starts when it is first needed.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"

namespace weft {

// In call order, one at a time. Thread-safe.
class WorkQueue {
 public:
  WorkQueue() = default;
  ~WorkQueue() { Close(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  // Runs `work` after all earlier ones: on the queue's thread, or here and now if nothing waits and `inline_allowed`.
  // How many may wait is the engine's business (lazy::MeshState::kAhead).
  void Submit(std::function<void()> work, bool inline_allowed);
  void Drain();
  // Does what waits, then ends the thread. Later work runs on its caller's thread.
  void Close();
  // RESOURCE_EXHAUSTED if there is no thread for launches that must not run on a caller's.
  absl::Status NeedThread();
  // FAILED_PRECONDITION if the queue's thread stayed behind in a fork's parent.
  absl::Status CheckProcess() const { return fork_.Check(); }

 private:
  void Work();
  // Starts the queue's thread if it is not there yet; false if there is none to be had.
  bool HasThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  ForkGuard fork_;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft
