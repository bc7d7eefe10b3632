// Spin for a bounded time, then park on a futex. Spinning makes a region cost 0.1 us instead of 22; bounded, because
// a spinning worker takes the caller's core on machines whose cores are shared.
#include "src/runtime/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/lasting.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_table.h"
#include "src/runtime/trace.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Inside a program's run the next region follows within microseconds; after it, the host records the next step.
constexpr auto kSpinInRun = std::chrono::microseconds(200);
constexpr auto kSpinIdle = std::chrono::microseconds(40);
constexpr auto kSpinJoin = std::chrono::microseconds(100);

// The kernel may put a worker that is woken or new on the CPU of the thread that woke or made it although another one is idle,
// and move it 10 to 20 ms later (seen in virtual machines of two CPUs). With few threads a worker is told where not to begin,
// which takes two microseconds a wake; with many there is nearly always another place.
constexpr int kFewThreads = 8;

thread_local bool tls_inside_region = false;
constinit thread_local bool tls_library_thread = false;
constinit thread_local void* tls_owner = nullptr;
constinit thread_local int tls_share = 0;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// True when `ready` came true within `limit`. The clock is read every 64 pauses (about 3 us apart).
template <typename Ready>
bool SpinUntil(Clock::duration limit, Ready ready) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      Pause();
    }
    if (Clock::now() >= deadline) return ready();
  }
}

// False if there would be none left, or it is not there.
bool Without(int cpu, cpu_set_t* set) {
  if (cpu < 0 || CPU_COUNT(set) < 2 || !CPU_ISSET(cpu, set)) return false;
  CPU_CLR(cpu, set);
  return true;
}

}  // namespace

bool OnLibraryThread() { return tls_library_thread; }
void MarkLibraryThread() {
  tls_library_thread = true;
  SetDefaultFloats();
}

int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::max(1u, std::thread::hardware_concurrency());
  return std::max(1, CPU_COUNT(&set));
}

void* ThreadPool::owner() { return tls_owner; }
int ThreadPool::share() { return tls_share; }
ThreadPool::Scope::Scope(void* owner) : before_(std::exchange(tls_owner, owner)) {}
ThreadPool::Scope::~Scope() { tls_owner = before_; }

std::shared_ptr<ThreadPool> ThreadPool::Shared(int threads) {
  struct Pools {
    Mutex mutex;
    std::map<int, std::weak_ptr<ThreadPool>> by_threads ABSL_GUARDED_BY(mutex);

    void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
  };
  static constinit Lasting<Pools> all;
  Pools& pools = all.Get();
  if (threads < 1) threads = AvailableCpus();
  MutexLock lock(pools.mutex);
  std::weak_ptr<ThreadPool>& known = pools.by_threads[threads];
  std::shared_ptr<ThreadPool> pool = known.lock();
  // A forked child has none of the parent's threads.
  if (pool == nullptr || pool->fork_.Forked()) known = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

ThreadPool::ThreadPool(int threads)
    : threads_(threads < 1 ? AvailableCpus() : threads), claimed_(std::make_unique<Claimed[]>(threads_)) {}

ThreadPool::~ThreadPool() {
  if (fork_.Forked()) {
    // The threads exist in the parent only: joining them would wait forever, so their handles are left behind.
    static_cast<void>(new std::vector<std::thread>(std::move(workers_)));
    return;
  }
  stop_.store(true, std::memory_order_seq_cst);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  WakeParked();
  for (std::thread& worker : workers_) worker.join();
}

absl::Status ThreadPool::CheckProcess() const { return fork_.Check(); }

void ThreadPool::Start() {
  workers_.reserve(threads_ - 1);
  for (int worker = 1; worker < threads_; ++worker) {
    try {
      workers_.emplace_back([this, worker] { Work(worker); });
    } catch (const std::exception&) {
      break;  // fewer threads than asked for: their shares run on the caller
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    const int cpu = sched_getcpu();
    if (threads_ <= kFewThreads && sched_getaffinity(0, sizeof(set), &set) == 0 && Without(cpu, &set) &&
        pthread_setaffinity_np(workers_.back().native_handle(), sizeof(set), &set) == 0) {
      claimed_[worker].off.store(cpu + 1, std::memory_order_release);
    }
  }
  // Not before: a process forked until here uses the pool as if it had made it.
  if (!workers_.empty()) fork_.Started();
  started_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
}

void ThreadPool::RunShare(const Region& region, int worker) const {
  const int64_t begin = region.count * worker / threads_;
  const int64_t end = region.count * (worker + 1) / threads_;
  if (begin >= end) return;
  void* const owner = std::exchange(tls_owner, region.owner);
  const int share = std::exchange(tls_share, worker);
  (*region.fn)(begin, end, worker);
  tls_owner = owner;
  tls_share = share;
}

bool ThreadPool::Claim(int worker, uint32_t epoch) {
  // Every share of every region is claimed before the next region begins, so a thread that comes too late finds another
  // number here than the one before its own.
  uint32_t before = epoch - 1;
  return claimed_[worker].epoch.compare_exchange_strong(before, epoch, std::memory_order_acq_rel);
}

void ThreadPool::KeepOff(int worker) {
  Claimed& own = claimed_[worker];
  const int thread = own.thread.load(std::memory_order_acquire), cpu = sched_getcpu();
  int free = 0;
  if (thread == 0 || !own.off.compare_exchange_strong(free, -1, std::memory_order_acq_rel)) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool off = sched_getaffinity(thread, sizeof(set), &set) == 0 && Without(cpu, &set) &&
                   sched_setaffinity(thread, sizeof(set), &set) == 0;
  own.off.store(off ? cpu + 1 : 0, std::memory_order_release);
}

void ThreadPool::LetBack(int worker) {
  const int cpu = claimed_[worker].off.load(std::memory_order_acquire) - 1;
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
  }
  claimed_[worker].off.store(0, std::memory_order_release);
}

void ThreadPool::WakeParked() {
  if (parked_.load(std::memory_order_seq_cst) == 0) return;
  if (threads_ <= kFewThreads) {
    for (int worker = 1; worker < threads_; ++worker) KeepOff(worker);
  }
  ticket_.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(&ticket_, threads_);
}

void ThreadPool::Work(int worker) {
  tls_inside_region = true;  // a region opened by a worker runs inline
  NameThread(absl::StrCat("weft-pool-", worker));
  MarkLibraryThread();
  claimed_[worker].thread.store(static_cast<int>(syscall(SYS_gettid)), std::memory_order_release);
  uint32_t seen = 0;
  for (;;) {
    LetBack(worker);
    const auto moved = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
    const auto limit = active_runs_.load(std::memory_order_relaxed) > 0 ? kSpinInRun : kSpinIdle;
    if (!SpinUntil(limit, moved)) {
      const uint32_t ticket = ticket_.load(std::memory_order_seq_cst);
      parked_.fetch_add(1, std::memory_order_seq_cst);
      // A region that starts now either sees this worker parked or has moved the epoch already.
      if (epoch_.load(std::memory_order_seq_cst) == seen) FutexWait(&ticket_, ticket);
      parked_.fetch_sub(1, std::memory_order_seq_cst);
      continue;
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    if (!Claim(worker, seen)) continue;
    SetThreadState(ThreadState::kHelping, 0);
    RunShare(region_, worker);
    SetThreadState(ThreadState::kIdle, 0);
    if (pending_.fetch_sub(1, std::memory_order_seq_cst) == 1 && caller_parked_.load(std::memory_order_seq_cst)) {
      FutexWake(&pending_, 1);
    }
  }
}

void ThreadPool::ParallelRanges(int64_t count, RangeFn fn) {
  if (count <= 0) return;
  RunningKernel& kernel = ThisThreadsKernel();
  if (kernel.share != nullptr && count > 1 && !tls_inside_region) {
    // Shares that other threads do have spans of the kernel's name; this thread has the kernel's own.
    const RunningKernel running = std::exchange(kernel, {});
    ParallelRanges(count, [&, caller = &kernel](int64_t begin, int64_t end, int worker) {
      if (&ThisThreadsKernel() == caller) return fn(begin, end, worker);
      const SpanScope span(running.trace, *running.share);
      fn(begin, end, worker);
    });
    kernel = running;
    return;
  }
  const Region region{&fn, count, tls_owner};
  if (count == 1) return fn(0, 1, threads_ - 1);  // may open regions of its own
  if (tls_inside_region) {
    for (int worker = 0; worker < threads_; ++worker) {
      const int64_t begin = count * worker / threads_, end = count * (worker + 1) / threads_;
      if (begin < end) fn(begin, end, worker);
    }
    return;
  }
  if (threads_ == 1 || fork_.Forked() || !region_mutex_.TryLock()) {
    tls_inside_region = true;
    for (int worker = 0; worker < threads_; ++worker) RunShare(region, worker);
    tls_inside_region = false;
    return;
  }
  std::call_once(start_once_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(region_mutex_) { Start(); });
  tls_inside_region = true;
  region_ = region;
  const int workers = static_cast<int>(workers_.size());
  pending_.store(workers, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
  WakeParked();
  RunShare(region_, 0);
  for (int worker = workers + 1; worker < threads_; ++worker) RunShare(region_, worker);
  for (int worker = 1; worker <= workers; ++worker) {
    if (!Claim(worker, epoch)) continue;
    RunShare(region_, worker);
    pending_.fetch_sub(1, std::memory_order_seq_cst);
  }
  const auto finished = [&] { return pending_.load(std::memory_order_acquire) == 0; };
  while (!SpinUntil(kSpinJoin, finished)) {
    caller_parked_.store(true, std::memory_order_seq_cst);
    const uint32_t left = pending_.load(std::memory_order_seq_cst);
    if (left != 0) FutexWait(&pending_, left);
    caller_parked_.store(false, std::memory_order_seq_cst);
  }
  tls_inside_region = false;
  region_mutex_.Unlock();
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t index)> fn) {
  ParallelRanges(count, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) fn(i);
  });
}

void ThreadPool::BeginRun() {
  if (active_runs_.fetch_add(1, std::memory_order_relaxed) == 0 && !fork_.Forked()) WakeParked();
}

void ThreadPool::EndRun() { active_runs_.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace weft
