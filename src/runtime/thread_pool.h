// The process's workers. Kernels split their work statically over them, so that the same rows stay on the same core
// from kernel to kernel. Two spinning pools on one machine slow each other down 50-fold (measured): share one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"

namespace weft {

// Thread-safe. A region that finds the workers busy with another thread's region, and a region opened inside a
// region, run on the calling thread alone: results never depend on how many threads took part.
class ThreadPool {
 public:
  // `threads` counts the caller: 1 means no workers at all. Values below 1 mean the number of CPUs this process may
  // use. No thread starts before the first region that wants one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Splits [0, count) into one contiguous range per thread and calls fn(begin, end, worker) for every non-empty one.
  // worker is in [0, threads()) and numbers the share, not the thread: scratch goes by share(). Returns when all
  // are done. Costs 0.1 us while the workers spin, 20 us when they have parked. The caller does shares itself
  // whose workers have not begun when its own is done: where another process has a worker's core, that worker may come
  // milliseconds late.
  using RangeFn = absl::FunctionRef<void(int64_t begin, int64_t end, int worker)>;
  void ParallelRanges(int64_t count, RangeFn fn);

  // The same split, one call per index.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t index)> fn);

  // Something of the caller's that all shares of its regions see, on whatever thread they run: where kernels find their
  // scratch. Null unless a Scope is open on the calling thread.
  static void* owner();
  class Scope {
   public:
    explicit Scope(void* owner);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    void* before_;
  };
  // Which share of a region this thread is doing; 0 outside. A region inside a share keeps the outer number.
  static int share();

  // The process's pool of so many threads (below 1: of the CPUs it may use): those who have one at the same time share it.
  static std::shared_ptr<ThreadPool> Shared(int threads);

  // Wakes parked workers ahead of the first region of a program (a futex wake, 0.2 us here, 20 us until it counts),
  // and keeps them spinning longer until the matching EndRun.
  void BeginRun();
  void EndRun();

  // After fork() the child has none of the workers that were running. FAILED_PRECONDITION then, for the owner to report;
  // regions still run, on the calling thread alone.
  absl::Status CheckProcess() const;

  // Workers started so far; for tests and metrics.
  int started_workers() const { return started_.load(std::memory_order_relaxed); }

 private:
  struct Region {
    const RangeFn* fn = nullptr;
    int64_t count = 0;
    void* owner = nullptr;
  };

  void Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(region_mutex_);
  void Work(int worker);
  void WakeParked();
  // Before a parked worker is woken: not to this thread's CPU. And afterwards: there, too, whenever it likes.
  void KeepOff(int worker);
  void LetBack(int worker);
  void RunShare(const Region& region, int worker) const;
  // True for the one thread that shall do this worker's share of the region `epoch`.
  bool Claim(int worker, uint32_t epoch);

  const int threads_;
  ForkGuard fork_;
  std::once_flag start_once_;
  std::atomic<int> started_{0};
  Mutex region_mutex_;  // held for the length of one region
  Region region_;       // written under the lock and before epoch_ moves, read by workers after
  std::vector<std::thread> workers_ ABSL_GUARDED_BY(region_mutex_);
  // Per worker, in cache lines of its own.
  struct alignas(128) Claimed {
    std::atomic<uint32_t> epoch{0};  // the latest region whose share somebody has taken
    std::atomic<int> thread{0};      // the system's number
    std::atomic<int> off{0};         // the CPU that it was kept off, counted from 1; -1: about to be
  };
  std::unique_ptr<Claimed[]> claimed_;
  alignas(128) std::atomic<uint32_t> epoch_{0};    // one step per region
  alignas(128) std::atomic<uint32_t> pending_{0};  // workers' shares that are not done; the caller waits on it
  alignas(128) std::atomic<uint32_t> ticket_{0};   // parked workers wait on it
  std::atomic<int> parked_{0};
  std::atomic<bool> caller_parked_{false};
  std::atomic<int> active_runs_{0};
  std::atomic<bool> stop_{false};
};

// A thread that belongs to the library and that others wait for: it must not run a caller's code, which may wait for
// them. Workers are; other threads that run launches say so.
bool OnLibraryThread();
void MarkLibraryThread();

// CPUs that this process may run on (its affinity mask).
int AvailableCpus();

}  // namespace weft
