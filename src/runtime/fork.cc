// See fork.h and fork_waits.h.
#include "src/runtime/fork.h"

#include <pthread.h>

#include <array>
#include <chrono>
#include <mutex>
#include <thread>

#include "src/runtime/fork_waits.h"
#include "src/runtime/status.h"

namespace weft {

constinit std::atomic<uint64_t> g_fork_generation{0};

namespace {

constinit std::atomic<bool> g_watching{false};

// The locks of the process of one order. Nothing leaves the table, and its places fill up from the first.
struct ProcessLocks {
  std::array<std::atomic<Mutex*>, 8> locks{};
  size_t taken = 0;  // by the fork in progress, while it has g_forking: others may come meanwhile
};
constinit ProcessLocks g_locks[4];
constinit Mutex g_forking;  // of `taken`, and held by the forking thread

// The number of threads that do work which a fork waits for. The gate is held to begin such work, and by a fork from
// before it waits until it is over. Waiting is polling: a condition variable that others wait for is not whole in the
// child.
constinit Mutex g_gate;  // held while g_workers grows, and by a fork
constinit std::atomic<int> g_workers{0};
constinit thread_local int t_works = 0;  // how many ForkWaits of this thread live
constexpr std::chrono::microseconds kPoll{50};

void TakeAll() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  g_forking.Lock();
  g_gate.Lock();
  const int own = t_works > 0 ? 1 : 0;
  while (g_workers.load(std::memory_order_acquire) > own) std::this_thread::sleep_for(kPoll);
  for (ProcessLocks& of_order : g_locks) {
    for (of_order.taken = 0; of_order.taken < of_order.locks.size(); ++of_order.taken) {
      Mutex* const mutex = of_order.locks[of_order.taken].load(std::memory_order_acquire);
      if (mutex == nullptr) break;
      mutex->Lock();
    }
  }
}

void LetGoOfAll() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (size_t order = std::size(g_locks); order-- > 0;) {
    for (ProcessLocks& of_order = g_locks[order]; of_order.taken > 0; --of_order.taken) {
      of_order.locks[of_order.taken - 1].load(std::memory_order_relaxed)->Unlock();
    }
  }
  g_gate.Unlock();
  g_forking.Unlock();
}

// A hook of libc cannot be taken back: the library that holds it must stay loaded, which the link says (nodelete).
void Watch() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(TakeAll, LetGoOfAll, [] {
      g_fork_generation.fetch_add(1, std::memory_order_relaxed);
      LetGoOfAll();
    });
    g_watching.store(true, std::memory_order_relaxed);
  });
}

}  // namespace

uint64_t ForkGeneration() {
  if (!g_watching.load(std::memory_order_relaxed)) Watch();
  return g_fork_generation.load(std::memory_order_relaxed);
}

void HoldOverFork(Mutex& mutex, ForkOrder order) {
  (void)ForkGeneration();  // from now on forks are noticed
  for (std::atomic<Mutex*>& place : g_locks[static_cast<size_t>(order)].locks) {
    Mutex* free = nullptr;
    if (place.compare_exchange_strong(free, &mutex, std::memory_order_release, std::memory_order_relaxed)) return;
    if (free == &mutex) return;
  }
}

ForkWaits::ForkWaits() {
  if (t_works++ > 0) return;
  (void)ForkGeneration();  // from now on forks are noticed
  MutexLock lock(g_gate);
  g_workers.fetch_add(1, std::memory_order_relaxed);
}

ForkWaits::~ForkWaits() {
  if (--t_works == 0) g_workers.fetch_sub(1, std::memory_order_release);
}

void ForkGuard::StartedNow() {
  uint64_t none = 0;
  generation_.compare_exchange_strong(none, ForkGeneration() + 1, std::memory_order_relaxed);
}

absl::Status ForkGuard::Check() const { return Forked() ? Refusal() : absl::OkStatus(); }

absl::Status ForkGuard::Refusal() {
  return UserErrorOf(
      absl::StatusCode::kFailedPrecondition,
      "the context was used before fork and its threads did not come along; make a new context in the child");
}

}  // namespace weft
