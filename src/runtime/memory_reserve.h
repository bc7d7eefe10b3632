// A reserve for compilations that find no memory. LLVM ends the process then, and neither it nor the hash tables that
// we compile with survive an exception out of an allocation: so inside a ReserveScope none comes out of any. Memory
// that the system does not give is taken from the reserve, and the scope remembers it; the scope's owner looks between
// two steps and gives up. libweft.so sends its malloc, and with it new, here (memory_reserve_hooks.cc); where that is
// not linked, in programs that test the layers and under sanitizers, a scope does nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// Address space, mapped by the first scope and touched only in need. A compilation holds a few MB; what it needs between two
// looks is less.
inline constexpr size_t kReserveBytes = size_t{64} << 20;

// The scope of one thread; a scope inside a scope is the outer one. Thread rule: made, asked and ended on one thread.
class ReserveScope {
 public:
  // Tells of a thread for which the reserve is used up, too: it waits for memory in the middle of its work, and nobody
  // should wait for that work.
  struct Starving {
    std::atomic<bool> now{false};
    std::atomic<bool> ever{false};
  };
  explicit ReserveScope(Starving* starving = nullptr);
  ~ReserveScope();
  ReserveScope(const ReserveScope&) = delete;
  ReserveScope& operator=(const ReserveScope&) = delete;

  // Returns the object that the calling thread's scope was given: for a scope of a thread that helps it.
  static Starving* starving();

  struct Slot;

 private:
  Slot* slot_ = nullptr;  // null: all are taken, or this is an inner scope
};

// RESOURCE_EXHAUSTED, without a text, which would need memory, if something has failed in the calling thread's scope; also if there
// is no reserve, because even address space is short.
absl::Status CheckReserve();

class MemoryReserve {
 public:
  // Null outside a scope. `system` is asked again while a starving thread waits.
  static void* Take(size_t size, size_t align, void* (*system)(size_t align, size_t size));
  // Frees and measures blocks from the reserve.
  static void Give(void* block);
  static size_t SizeOf(const void* block);
  // The calling thread's scope has met a failure that it can be told, such as of mmap.
  static void Note();
  // Bytes of blocks that are out; for tests.
  static size_t live();

  // Where the reserve lies; nothing lies in it before it is mapped.
  static std::atomic<uintptr_t> begin;
  static bool Holds(const void* block) {
    return reinterpret_cast<uintptr_t>(block) - begin.load(std::memory_order_relaxed) < kReserveBytes;
  }
};

}  // namespace weft
