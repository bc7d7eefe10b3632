// Calls of a plugin's that may not return are made on another thread, which is then left behind.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/runtime/event.h"
#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft::pjrt {

// Threads for such calls, kept for the next ones: as many as there are calls at the same time. Thread rule: any thread.
class Aside {
 public:
  Aside() = default;
  ~Aside() { Close(); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // Calls `work` on another thread as long as `wait` waits, which says whether `returned` was done in time and throws nothing. If it was,
  // nothing of `work` is left. If not, this thread goes on without it, so `work` owns everything that it uses.
  bool Run(std::function<void()> work, absl::FunctionRef<bool(const Ref<Event>& returned)> wait);
  // Ends the threads that do nothing.
  void Close();

 private:
  struct Worker;
  std::shared_ptr<Worker> Idle();

  ForkGuard fork_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Worker>> idle_ ABSL_GUARDED_BY(mutex_);  // has room for all
  size_t workers_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A deadline as Event::WaitDone takes it.
int64_t InNanoseconds(int64_t deadline_ms);

// The function of a plugin's that a thread called last, by its name; null: none.
using LastCall = std::atomic<const char*>;
// Where this thread's calls are noted; null: nowhere.
LastCall*& CallsNotedIn();

// Calls `start`, on another thread unless the deadline is 0, which is none. DEADLINE_EXCEEDED, which begins with `what` and names the
// function of the plugin's that has not returned, if that takes longer; see Aside::Run.
absl::Status StartInTime(int64_t deadline_ms, std::string_view what, std::function<void()> start);
// The error alone, where another thread has started it.
absl::Status NotStarted(int64_t deadline_ms, std::string_view what, const char* last_call);

}  // namespace weft::pjrt
