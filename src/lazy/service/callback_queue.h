// The option callbacks=queued: what a caller's functions are to do waits here until one of the caller's threads runs it.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "src/runtime/mutex.h"

namespace weft::lazy {

// Thread rule: any thread, under any lock: nothing is called and nothing else is locked but in Run and Close.
class CallbackQueue {
 public:
  using One = std::list<std::function<void()>>;

  static absl::StatusOr<std::shared_ptr<CallbackQueue>> Create();
  ~CallbackQueue();
  CallbackQueue(const CallbackQueue&) = delete;
  CallbackQueue& operator=(const CallbackQueue&) = delete;

  // Takes a list of one: a release of memory, perhaps in a destructor, cannot fail. After Close it is run at once.
  void Add(One one);
  // Log records, of which the newest are left out while nobody takes those that wait; Run says how many were.
  void AddRecord(std::function<void()> record);
  // Runs what waits now, in its order, not what these add. How many.
  size_t Run(const std::function<void(size_t left_out)>& say);
  // Tells whether this thread is in Run of any queue.
  static bool Running() { return running_; }
  // Runs what waits, and from here on everything at once.
  void Close();
  // Readable while something waits.
  int fd() const { return fd_; }

 private:
  explicit CallbackQueue(int fd) : fd_(fd) {}
  void Append(One& one);
  One TakeAll(size_t* left_out);
  static void RunEach(const One& all);

  static constinit thread_local bool running_;
  const int fd_;
  Mutex mutex_;
  One waiting_ ABSL_GUARDED_BY(mutex_);
  size_t records_ ABSL_GUARDED_BY(mutex_) = 0, left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::lazy
