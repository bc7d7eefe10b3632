// Work of one device in order, on a thread of the library's that starts when it is first needed.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"

namespace weft {

// In call order, one at a time. Thread-safe.
class WorkQueue {
 public:
  WorkQueue() = default;
  // `idle` is called on the queue's thread, if it has one, when there was nothing to do for eight seconds.
  explicit WorkQueue(std::function<void()> idle) : idle_(std::move(idle)) {}
  ~WorkQueue() { Close(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  // Which threads may do some work.
  enum class By : uint8_t {
    kQueue,   // the queue's own alone, if there is one to be had
    kWaiter,  // or one that waits for it: see Help
    kCaller,  // or who submits it, if nothing is ahead of it
  };
  // Runs `work` after all earlier ones. How many may wait is the engine's business (lazy::MeshState::kAhead).
  void Submit(std::function<void()> work, By by);
  // A waiting thread calls this: begins the next piece, unless it has begun, and ends it. Two threads need not be woken
  // for work that takes less time than that. False: there is nothing that this thread may do. After a piece that was
  // waited for at once the next one is expected to be, too, and wakes nobody (which takes 10 us); the queue's thread
  // then looks every millisecond whether it is wanted, as long as pieces come.
  bool Help();
  void Drain();
  // Does what waits, then ends the thread. Later work runs on its caller's thread.
  void Close();
  // RESOURCE_EXHAUSTED if there is no thread for launches that must not run on a caller's.
  absl::Status NeedThread();
  // FAILED_PRECONDITION if the queue's thread stayed behind in a fork's parent.
  absl::Status CheckProcess() const { return fork_.Check(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Piece {
    std::function<void()> work;
    By by;
    Clock::time_point submitted;
  };
  void Work();
  // Until somebody wakes the queue's thread.
  void Sleep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs it on this thread, with the lock open.
  void Run(std::function<void()> work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the queue's thread if it is not there yet; false if there is none to be had.
  bool HasThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<void()> idle_;
  Mutex mutex_;
  CondVar more_;   // for the queue's thread: something waits, or it shall end
  CondVar ended_;  // for others: a piece has ended
  std::deque<Piece> waiting_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiter_comes_ ABSL_GUARDED_BY(mutex_) = false;  // the last piece of kWaiter was waited for at once
  int looks_ ABSL_GUARDED_BY(mutex_) = 0;  // that the queue's thread will still take before it sleeps until it is woken
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;  // it sleeps until the next look at most
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  ForkGuard fork_;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft
