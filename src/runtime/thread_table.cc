// See thread_table.h.
#include "src/runtime/thread_table.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>

#include "src/runtime/fork.h"

constinit weft::ThreadTable weft_thread_table{};

namespace weft {
namespace {

constinit ThreadTable::Slot g_nobodys;
constinit thread_local ThreadTable::Slot* t_slot = nullptr;
constinit thread_local uint64_t t_forks = 0;

// A thread's end gives its slot back. By a key: what a thread_local object registers for that takes memory, and without any glibc
// ends the process.
void GiveBack(void* given) {
  auto* const slot = static_cast<ThreadTable::Slot*>(given);
  t_slot = &g_nobodys;
  slot->state.store(0, std::memory_order_relaxed);
  slot->text.store(nullptr, std::memory_order_relaxed);
  slot->program.store(0, std::memory_order_relaxed);
  slot->entry.store(-1, std::memory_order_relaxed);
  slot->thread.store(0, std::memory_order_release);
}

constinit pthread_once_t g_once = PTHREAD_ONCE_INIT;
constinit pthread_key_t g_key = 0;
constinit bool g_has_key = false;

ThreadTable::Slot* TakeSlot() {
  const auto self = static_cast<uint32_t>(syscall(SYS_gettid));
  pthread_once(&g_once, [] { g_has_key = pthread_key_create(&g_key, GiveBack) == 0; });
  if (!g_has_key) return &g_nobodys;
  weft_thread_table.version.store(ThreadTable::kVersion, std::memory_order_relaxed);
  weft_thread_table.slot_bytes.store(sizeof(ThreadTable::Slot), std::memory_order_relaxed);
  weft_thread_table.slots.store(ThreadTable::kSlots, std::memory_order_relaxed);
  weft_thread_table.magic.store(std::bit_cast<uint64_t>(std::array<char, 8>{'w', 'e', 'f', 't', 't', 'h', 'r', 0}),
                                std::memory_order_release);
  for (uint32_t i = 0; i < ThreadTable::kSlots; ++i) {
    ThreadTable::Slot& slot = weft_thread_table.slot[(self + i) % ThreadTable::kSlots];
    uint32_t free = 0;
    if (!slot.thread.compare_exchange_strong(free, self, std::memory_order_acq_rel)) continue;
    slot.entry.store(-1, std::memory_order_relaxed);
    if (pthread_setspecific(g_key, &slot) == 0) return &slot;
    GiveBack(&slot);
    return &g_nobodys;
  }
  weft_thread_table.lost.fetch_add(1, std::memory_order_relaxed);
  return &g_nobodys;
}

}  // namespace

ThreadTable::Slot& ThisThreadsSlot() {
  ThreadTable::Slot* slot = t_slot;
  if (slot == nullptr) {
    t_slot = slot = TakeSlot();
    t_forks = IsForked() ? ForkGeneration() : 0;
  } else if (IsForked() && t_forks != ForkGeneration()) {
    // The thread that forked goes on in the child under another number.
    t_forks = ForkGeneration();
    if (slot != &g_nobodys) slot->thread.store(static_cast<uint32_t>(syscall(SYS_gettid)), std::memory_order_relaxed);
  }
  return *slot;
}

ThreadStateScope::ThreadStateScope(ThreadState state, int64_t since, uint64_t program, const char* text)
    : state_(ThisThreadsSlot().state.load(std::memory_order_relaxed)),
      since_(ThisThreadsSlot().since.load(std::memory_order_relaxed)),
      program_(ThisThreadsSlot().program.load(std::memory_order_relaxed)),
      text_(ThisThreadsSlot().text.load(std::memory_order_relaxed)) {
  SetThreadState(state, since);
  ThreadTable::Slot& slot = ThisThreadsSlot();
  if (program != 0) slot.program.store(program, std::memory_order_relaxed);
  slot.text.store(text, std::memory_order_relaxed);
}

ThreadStateScope::~ThreadStateScope() {
  ThreadTable::Slot& slot = ThisThreadsSlot();
  slot.state.store(state_, std::memory_order_relaxed);
  slot.since.store(since_, std::memory_order_relaxed);
  slot.program.store(program_, std::memory_order_relaxed);
  slot.text.store(text_, std::memory_order_relaxed);
  slot.entry.store(-1, std::memory_order_relaxed);
}

}  // namespace weft
