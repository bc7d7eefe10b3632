// See work_queue.h.
#include "src/runtime/work_queue.h"

#include <system_error>
#include <utility>

#include "src/runtime/float_environment.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_pool.h"

namespace weft {

void WorkQueue::Close() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    thread = std::move(thread_);
  }
  changed_.NotifyAll();
  if (thread.joinable()) thread.join();
}

bool WorkQueue::HasThread() {
  if (started_ || stop_) return !stop_;
  try {
    thread_ = std::thread([this] { Work(); });
  } catch (const std::system_error&) {
    return false;
  }
  fork_.Started();
  return started_ = true;
}

absl::Status WorkQueue::NeedThread() {
  MutexLock lock(mutex_);
  if (HasThread()) return absl::OkStatus();
  return absl::ResourceExhaustedError("cannot start a thread for launches, on which custom operations run");
}

void WorkQueue::Submit(std::function<void()> work, bool inline_allowed) {
  MutexLock lock(mutex_);
  const bool idle = waiting_.empty() && !running_;
  if (!(inline_allowed && idle) && HasThread()) {
    waiting_.push_back(std::move(work));
    lock.Unlock();
    changed_.NotifyAll();
    return;
  }
  while (running_) changed_.Wait(mutex_);  // without a thread: on this one, in its turn
  running_ = true;
  lock.Unlock();
  {
    const FloatScope floats;
    work();
  }
  lock.Lock();
  running_ = false;
  changed_.NotifyAll();
}

void WorkQueue::Work() {
  MarkLibraryThread();
  MutexLock lock(mutex_);
  while (true) {
    while (waiting_.empty() ? !stop_ : running_) changed_.Wait(mutex_);
    if (waiting_.empty()) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    lock.Unlock();
    work();
    work = nullptr;  // releases buffers before the next launch may look for memory
    lock.Lock();
    running_ = false;
    changed_.NotifyAll();
  }
}

void WorkQueue::Drain() {
  MutexLock lock(mutex_);
  while (!waiting_.empty() || running_) changed_.Wait(mutex_);
}

}  // namespace weft
