// See compile_queue.h.
#include "src/compiler/compile_queue.h"

#include <new>
#include <system_error>

#include "src/runtime/float_environment.h"
#include "src/runtime/thread_pool.h"

namespace weft::compiler {

void CompileQueue::EndThread() {
  std::thread ending;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    ending = std::move(thread_);
  }
  changed_.NotifyAll();
  if (ending.joinable()) ending.join();
}

CompileQueue::~CompileQueue() {
  EndThread();
  MutexLock lock(mutex_);
  while (!jobs_.empty()) {
    const Ref<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.Unlock();
    try {
      job->result_ = absl::CancelledError("the context was closed before the program was compiled");
    } catch (const std::bad_alloc&) {
      job->result_ = absl::Status(absl::StatusCode::kCancelled, "");
    }
    job->done_->Complete(absl::OkStatus());
    lock.Lock();
  }
}

Ref<CompileQueue::Job> CompileQueue::Enter(ProgramCache& cache, Wanted wanted) {
  Ref<Job> job;
  {
    MutexLock lock(mutex_);
    for (const Ref<Job>& other : jobs_) {
      if (other->cache_ == &cache && other->canonical_ == wanted.canonical) return other;
    }
    job = MakeRef<Job>();
    if (stop_) {
      job->result_ = absl::FailedPreconditionError("the context has been closed");
      job->done_->Complete(absl::OkStatus());
      return job;
    }
    job->cache_ = &cache;
    job->canonical_ = wanted.canonical;
    job->wanted_ = std::move(wanted);
    if (!started_) {
      try {
        thread_ = std::thread([this] { Work(); });
        started_ = true;
      } catch (const std::system_error&) {
        // No thread to be had: on this one.
      }
    }
    if (started_) {
      jobs_.push_back(job);
      changed_.NotifyAll();
      return job;
    }
  }
  const WholeFloatScope floats;
  job->result_ = cache.Make(std::move(job->wanted_));
  job->done_->Complete(absl::OkStatus());
  return job;
}

void CompileQueue::Work() {
  MarkLibraryThread();
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && jobs_.empty()) changed_.Wait(mutex_);
    if (stop_) return;
    const Ref<Job> job = jobs_.front();
    lock.Unlock();
    try {
      job->result_ = job->cache_->Make(std::move(job->wanted_));
    } catch (const std::bad_alloc&) {
      job->result_ = absl::Status(absl::StatusCode::kResourceExhausted, "");  // a text would need memory
    }
    lock.Lock();
    // Out of the queue first: who asks again after a failure must not find it here.
    jobs_.pop_front();
    changed_.NotifyAll();
    lock.Unlock();
    job->done_->Complete(absl::OkStatus());
    lock.Lock();
  }
}

void CompileQueue::Close() {
  {
    MutexLock lock(mutex_);
    while (!jobs_.empty()) changed_.Wait(mutex_);
  }
  EndThread();
}

}  // namespace weft::compiler
