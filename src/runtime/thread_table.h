// One word a thread, always written: what it is doing since when. `weft dump-stacks` reads the table from another process, whatever
// state this one is in, so its layout is a promise: version 1.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft {

enum class ThreadState : uint32_t {
  kIdle,
  kRecording,  // or the caller's own work
  kLookingUp,
  kWaitingForCompiler,
  kWaitingForRoom,
  kWaitingForMemory,
  kWaitingForResults,
  kLaunching,
  kRunning,  // entry `entry` of program `program`
  kCopying,
  kCompiling,
  kHelping,  // a thread of the pool, with a kernel that another one runs
  kFiles,
};

struct ThreadTable {
  static constexpr uint32_t kSlots = 512, kVersion = 1;
  struct Slot {
    std::atomic<uint32_t> thread{0};   // the system's number; 0: the slot is free
    std::atomic<uint32_t> state{0};    // a ThreadState
    std::atomic<int64_t> since{0};     // MonotonicNow when it began; 0: not known
    std::atomic<uint64_t> program{0};  // the first 64 bits of its key; 0: none
    std::atomic<int32_t> entry{0};     // place in its list of the launch list; -1: none
    uint32_t reserved = 0;
    std::atomic<const char*> text{nullptr};  // a kernel's name, NUL-terminated, while the kernel is there; null: none
    uint8_t more[24] = {};
  };
  // Zero until the first thread has a slot: the table takes no room in the library's file.
  std::atomic<uint64_t> magic{0};  // "weftthr", ends with a zero byte
  std::atomic<uint32_t> version{0}, slot_bytes{0}, slots{0};
  std::atomic<uint32_t> lost{0};  // threads that found no slot
  uint8_t more[40] = {};
  Slot slot[kSlots];
};
static_assert(sizeof(ThreadTable::Slot) == 64 && offsetof(ThreadTable, slot) == 64);

// The calling thread's slot, taken at its first call and given back when the thread ends. Where all are taken it is one that nobody
// reads.
ThreadTable::Slot& ThisThreadsSlot();

// Notes what this thread does from here on. About 2 ns.
inline void SetThreadState(ThreadState state, int64_t since) {
  ThreadTable::Slot& slot = ThisThreadsSlot();
  slot.state.store(static_cast<uint32_t>(state), std::memory_order_relaxed);
  slot.since.store(since, std::memory_order_relaxed);
}

// Until the end of the scope, then what it did before.
class ThreadStateScope {
 public:
  ThreadStateScope(ThreadState state, int64_t since, uint64_t program = 0, const char* text = nullptr);
  ~ThreadStateScope();
  ThreadStateScope(const ThreadStateScope&) = delete;
  ThreadStateScope& operator=(const ThreadStateScope&) = delete;

 private:
  const uint32_t state_;
  const int64_t since_;
  const uint64_t program_;
  const char* const text_;
};

}  // namespace weft

extern "C" {
[[gnu::visibility("default")]] extern weft::ThreadTable weft_thread_table;
}
