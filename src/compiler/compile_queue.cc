// See compile_queue.h.
#include "src/compiler/compile_queue.h"

#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "src/runtime/clock.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/thread_pool.h"
#include "src/runtime/thread_table.h"
#include "src/runtime/trace.h"

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

std::string CompileQueue::Job::Progress() const {
  if (!begun_.load(std::memory_order_relaxed)) return "waits for other programs that are being compiled";
  const int64_t kernels = progress_.kernels.load(std::memory_order_relaxed);
  if (kernels == 0) return absl::StrCat("is ", progress_.phase.load(std::memory_order_relaxed));
  return absl::StrCat("is being compiled: ", progress_.done.load(std::memory_order_relaxed), " of ", kernels,
                      " new kernels are done");
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
    if (stop_) {
      job->result_ = absl::FailedPreconditionError("the context has been closed");
      job->done_->Complete(absl::OkStatus());
      return job;
    }
    job->cache_ = &cache;
    job->canonical_ = wanted.canonical;
    job->nodes_ = wanted.nodes;
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

std::optional<int64_t> CompileQueue::Others(std::string_view canonical) {
  MutexLock lock(mutex_);
  for (const Ref<Job>& job : jobs_) {
    if (job->canonical_ == canonical) return std::nullopt;
  }
  return static_cast<int64_t>(jobs_.size());
}

// Nothing that is allocated in here fails, so that no exception goes through LLVM or half a hash table; see memory_reserve.h.
void CompileQueue::Make(Job& job) {
  starving_.ever.store(false, std::memory_order_relaxed);
  bool exhausted = false;
  {
    const ReserveScope reserve(&starving_);
    try {
      exhausted = !CheckReserve().ok();
      job.begun_.store(true, std::memory_order_relaxed);
      if (!exhausted) job.result_ = job.cache_->Make(std::move(job.wanted_), &job.progress_);
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
  NameThread("weft-compile");
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && jobs_.empty()) changed_.Wait(mutex_);
    if (stop_) return;
    const Ref<Job> job = jobs_.front();
    lock.Unlock();
    {
      const ThreadStateScope compiling(ThreadState::kCompiling, MonotonicNow(), job->wanted_.key.high);
      Make(*job);
    }
    lock.Lock();
    // Out of the queue first: a caller that asks again after a failure must not find it here.
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
