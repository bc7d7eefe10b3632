// See rendezvous.h.
#include "src/distributed/rendezvous.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "src/runtime/clock.h"

namespace weft::distributed {
namespace {

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Rendezvous::Init(uint32_t members, bool shared) {
  arrived_.store(0, std::memory_order_relaxed);
  word_.store(WordOf(0), std::memory_order_relaxed);
  sleepers_.store(0, std::memory_order_relaxed);
  claimed_.store(0, std::memory_order_relaxed);
  members_ = members;
  // With a core for each the others are a few cache misses away; with fewer, those who spin keep the others from coming.
  spins_ = members <= static_cast<uint32_t>(UsableCores()) ? 2000 : 20;
  shared_ = shared;
}

void Rendezvous::Arrive(uint32_t phase) {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 != members_) return;
  arrived_.store(0, std::memory_order_relaxed);
  uint32_t word = WordOf(phase);
  // Fails if the group is poisoned: then the phase never ends.
  if (word_.compare_exchange_strong(word, WordOf(phase + 1), std::memory_order_seq_cst)) WakeAll();
}

void Rendezvous::WakeAll() {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), shared_ ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr,
          nullptr, 0);
}

bool Rendezvous::Spin(uint32_t phase) const {
  for (int i = 0; i < spins_; ++i) {
    if (word_.load(std::memory_order_acquire) != WordOf(phase)) return true;
    Relax();
  }
  return false;
}

bool Rendezvous::Sleep(uint32_t phase, int64_t limit_ns) {
  const timespec time = {limit_ns / 1'000'000'000, limit_ns % 1'000'000'000};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), shared_ ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, WordOf(phase),
          &time, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return word_.load(std::memory_order_acquire) != WordOf(phase);
}

void Rendezvous::Poison() {
  word_.fetch_or(kPoison, std::memory_order_seq_cst);
  WakeAll();
}

void Rendezvous::AwaitPoison(int64_t limit_ns) {
  const int64_t deadline = MonotonicNow() + limit_ns;
  while (!poisoned()) {
    if (MonotonicNow() >= deadline) return Poison();
    sched_yield();
  }
}

}  // namespace weft::distributed
