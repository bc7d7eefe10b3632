// See compile_queue.h.
#include "src/compiler/compile_queue.h"

#include <new>
#include <system_error>

#include "src/runtime/float_environment.h"
#include "src/runtime/thread_pool.h"

namespace weft::compiler {

CompileQueue::~CompileQueue() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
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
      // One that memory ran out for is as good as over.
      const bool lost = &other == &jobs_.front() && starving_.ever.load(std::memory_order_relaxed);
      if (!lost && other->cache_ == &cache && other->canonical_ == wanted.canonical) return other;
    }
    job = MakeRef<Job>();
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
  Make(*job);
  job->done_->Complete(absl::OkStatus());
  return job;
}

// Nothing that is allocated in here fails, so that no exception goes through LLVM or half a hash table; see memory_reserve.h.
void CompileQueue::Make(Job& job) {
  starving_.ever.store(false, std::memory_order_relaxed);
  bool exhausted = false;
  {
    const ReserveScope reserve(&starving_);
    try {
      exhausted = !CheckReserve().ok();
      if (!exhausted) job.result_ = job.cache_->Make(std::move(job.wanted_));
      // Whatever the steps after the first failure made of it.
      exhausted = exhausted || (!job.result_->ok() && !CheckReserve().ok());
    } catch (const std::bad_alloc&) {
      exhausted = true;
    }
    if (exhausted) job.result_ = absl::Status(absl::StatusCode::kResourceExhausted, "");
    job.wanted_ = Wanted();
  }
  if (!exhausted) return;
  try {
    job.result_ = absl::ResourceExhaustedError("memory ran out while the program was compiled");
  } catch (const std::bad_alloc&) {
    // Without a text, then.
  }
}

void CompileQueue::Work() {
  MarkLibraryThread();
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && jobs_.empty()) changed_.Wait(mutex_);
    if (stop_) return;
    const Ref<Job> job = jobs_.front();
    lock.Unlock();
    Make(*job);
    lock.Lock();
    // Out of the queue first: who asks again after a failure must not find it here.
    jobs_.pop_front();
    changed_.NotifyAll();
    lock.Unlock();
    job->done_->Complete(absl::OkStatus());
    lock.Lock();
  }
}

void CompileQueue::Drain() {
  MutexLock lock(mutex_);
  while (!jobs_.empty()) changed_.Wait(mutex_);
}

}  // namespace weft::compiler
