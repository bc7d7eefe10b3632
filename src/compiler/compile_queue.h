// Compiles programs on a thread of its own, one after the other, so that nobody holds a lock meanwhile and whoever waits can
// give up waiting. Those who want the same program wait for one compilation.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <thread>

#include "src/compiler/program_cache.h"
#include "src/runtime/event.h"
#include "src/runtime/memory_reserve.h"
#include "src/runtime/mutex.h"

namespace weft::compiler {

// Thread rule: any thread; never under a lock that the backend's compiler or the program store might want.
class CompileQueue {
 public:
  // A program that is being made. Nobody needs to keep the job for the program to be made and remembered.
  class Job final : public RefCounted {
   public:
    // Completes when the result is there, and never fails.
    const Ref<Event>& done() const { return done_; }
    // "is being compiled: 32 of 210 kernels are done": of a job that is not done, for messages.
    std::string Progress() const;
    int64_t nodes() const { return nodes_; }
    // Once it is done.
    const absl::StatusOr<std::shared_ptr<const Program>>& result() const { return *result_; }

   private:
    friend class CompileQueue;
    ProgramCache* cache_ = nullptr;
    Wanted wanted_;
    std::string canonical_;  // of the job, as long as it is in the queue
    int64_t nodes_ = 0;
    std::atomic<bool> begun_{false};
    CompileProgress progress_;
    std::optional<absl::StatusOr<std::shared_ptr<const Program>>> result_;
    const Ref<Event> done_ = MakeRef<Event>();
  };

  CompileQueue() = default;
  // Ends what is being compiled; what waits behind it is CANCELLED.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // The cache outlives the queue. If no thread can be had, the call itself compiles. After Close
  // FAILED_PRECONDITION.
  Ref<Job> Enter(ProgramCache& cache, Wanted wanted);
  // How many programs are being made, or wait for it; nothing if this one is among them.
  std::optional<int64_t> Others(std::string_view canonical);
  // Waits until nothing is left, and ends the thread: who later drops the last reference has nothing to wait for.
  void Close();
  // There is no memory at all, and what is being compiled waits for some: nobody should wait for it or for what is behind it. Its
  // job is done when there is.
  const std::atomic<bool>& starving() const { return starving_.now; }

 private:
  void Make(Job& job);
  void Work();
  void EndThread();

  ReserveScope::Starving starving_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Ref<Job>> jobs_ ABSL_GUARDED_BY(mutex_);  // the first is being compiled
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // there if started_ and not stop_
};

}  // namespace weft::compiler
