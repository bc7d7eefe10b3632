// See work_queue.h.
#include "src/runtime/work_queue.h"

#include <system_error>
#include <utility>

#include "src/runtime/float_environment.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_pool.h"
#include "src/runtime/trace.h"

namespace weft {
namespace {

constexpr auto kAtOnce = std::chrono::microseconds(50);
constexpr auto kBetweenLooks = std::chrono::milliseconds(1);
constexpr int kLooks = 20;
constexpr auto kIdle = std::chrono::seconds(8);  // so that what is given back then is gone within ten

}  // namespace

void WorkQueue::Close() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    thread = std::move(thread_);
  }
  more_.NotifyAll();
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

void WorkQueue::Submit(std::function<void()> work, By by) {
  MutexLock lock(mutex_);
  const bool idle = waiting_.empty() && !running_;
  if (!(by == By::kCaller && idle) && HasThread()) {
    waiting_.push_back({std::move(work), by, Clock::now()});
    looks_ = kLooks;
    const bool looks = by == By::kWaiter && idle && waiter_comes_ && looking_;
    lock.Unlock();
    if (!looks) more_.NotifyAll();
    return;
  }
  while (running_) ended_.Wait(mutex_);  // without a thread: on this one, in its turn
  Run(std::move(work));
}

bool WorkQueue::Help() {
  MutexLock lock(mutex_);
  if (running_ || waiting_.empty() || waiting_.front().by == By::kQueue || fork_.Forked()) return false;
  waiter_comes_ = Clock::now() - waiting_.front().submitted < kAtOnce;
  RunFirst();
  return true;
}

void WorkQueue::RunFirst() {
  std::function<void()> work = std::move(waiting_.front().work);
  waiting_.pop_front();
  Run(std::move(work));
}

void WorkQueue::Run(std::function<void()> work) {
  running_ = true;
  mutex_.Unlock();
  {
    const FloatScope floats;
    work();
    work = nullptr;  // releases buffers before the next launch may look for memory
  }
  mutex_.Lock();
  running_ = false;
  ended_.NotifyAll();
  if (!waiting_.empty()) more_.NotifyAll();
}

void WorkQueue::Sleep() {
  if (idle_ == nullptr || !waiting_.empty()) return more_.Wait(mutex_);
  const Clock::time_point until = Clock::now() + kIdle;
  more_.WaitUntil(mutex_, until);
  if (!waiting_.empty() || running_ || stop_ || Clock::now() < until) return;
  mutex_.Unlock();
  idle_();
  mutex_.Lock();
  if (waiting_.empty() && !stop_) more_.Wait(mutex_);  // once
}

void WorkQueue::Work() {
  MarkLibraryThread();
  NameThread("weft-launch");
  MutexLock lock(mutex_);
  while (true) {
    while (waiting_.empty() ? !stop_ : running_) {
      looking_ = waiter_comes_ && looks_-- > 0;
      if (looking_) {
        more_.WaitUntil(mutex_, Clock::now() + kBetweenLooks);
      } else {
        Sleep();
      }
      looking_ = false;
    }
    if (waiting_.empty()) return;
    waiter_comes_ = false;
    RunFirst();
  }
}

void WorkQueue::Drain() {
  MutexLock lock(mutex_);
  while (!waiting_.empty() || running_) ended_.Wait(mutex_);
}

}  // namespace weft
