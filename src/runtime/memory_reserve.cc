// See memory_reserve.h. Only system calls and constants: nothing here may allocate.
#include "src/runtime/memory_reserve.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <bit>

#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"

namespace weft {

struct ReserveScope::Slot {
  std::atomic<uintptr_t> thread{0};  // pthread_self; a thread-local variable might have to be allocated to be read
  std::atomic<bool> failed{false};
  std::atomic<Starving*> starving{nullptr};
};

// No address lies in the reserve before it is mapped.
constinit std::atomic<uintptr_t> MemoryReserve::begin{UINTPTR_MAX - kReserveBytes};

namespace {

// Before each block; what a larger alignment skips lies before the header.
struct Header {
  void* room;
  uint32_t size_class;
  uint32_t size;  // as asked for
};
static_assert(sizeof(Header) == 16 && kReserveBytes < UINT32_MAX);

// Rooms come in four sizes a doubling (48, 56, 64, 80, ...). Those that are free again wait in a list of their class, and once
// all are, the reserve is whole.
constexpr size_t kSmallest = 48;
constexpr size_t kClasses = 96;
struct Room {
  Room* next;
};

uint32_t ClassOf(size_t bytes) {
  if (bytes <= kSmallest) return 0;
  const int top = std::bit_width(bytes - 1) - 1;
  return static_cast<uint32_t>((top - 5) * 4 + static_cast<int>((bytes - 1) >> (top - 2) & 3) - 1);
}
size_t RoomOf(uint32_t size_class) {
  return size_class == 0 ? kSmallest : (size_t{8} << ((size_class + 1) / 4)) * (5 + (size_class + 1) % 4);
}

constinit Mutex g_mutex;
Room* g_rooms[kClasses] ABSL_GUARDED_BY(g_mutex);
size_t g_used ABSL_GUARDED_BY(g_mutex) = 0;  // of the reserve, from its beginning
size_t g_live ABSL_GUARDED_BY(g_mutex) = 0;

// More threads than compile at once; one that finds no slot has no reserve.
constinit ReserveScope::Slot g_slots[256];

bool Mapped() { return MemoryReserve::begin.load(std::memory_order_relaxed) != UINTPTR_MAX - kReserveBytes; }

bool Map() {
  if (!Mapped()) HoldOverFork(g_mutex, ForkOrder::kLast);
  MutexLock lock(g_mutex);
  if (Mapped()) return true;
  void* const memory =
      mmap(nullptr, kReserveBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  MemoryReserve::begin.store(reinterpret_cast<uintptr_t>(memory), std::memory_order_relaxed);
  return true;
}

uintptr_t Self() { return static_cast<uintptr_t>(pthread_self()); }

ReserveScope::Slot* SlotOf(uintptr_t thread) {
  for (ReserveScope::Slot& slot : g_slots) {
    if (slot.thread.load(std::memory_order_relaxed) == thread) return &slot;
  }
  return nullptr;
}

void* TakeRoom(size_t size, size_t align) {
  const size_t skip = align > sizeof(Header) ? align : 0;
  if (size > kReserveBytes || skip > kReserveBytes) return nullptr;
  const uint32_t size_class = ClassOf(size + sizeof(Header) + skip);
  const size_t bytes = RoomOf(size_class);
  MutexLock lock(g_mutex);
  char* room;
  if (g_rooms[size_class] != nullptr) {
    room = reinterpret_cast<char*>(g_rooms[size_class]);
    g_rooms[size_class] = g_rooms[size_class]->next;
  } else {
    const size_t rounded = (bytes + 15) & ~size_t{15};
    if (!Mapped() || rounded > kReserveBytes - g_used) return nullptr;
    room = reinterpret_cast<char*>(MemoryReserve::begin.load(std::memory_order_relaxed)) + g_used;
    g_used += rounded;
  }
  g_live += bytes;
  uintptr_t block = reinterpret_cast<uintptr_t>(room) + sizeof(Header);
  if (skip != 0) block = (block + align - 1) & ~(align - 1);
  reinterpret_cast<Header*>(block)[-1] = {room, size_class, static_cast<uint32_t>(size)};
  return reinterpret_cast<void*>(block);
}

}  // namespace

ReserveScope::ReserveScope(Starving* starving) {
  const uintptr_t self = Self();
  if (SlotOf(self) != nullptr) return;
  const bool mapped = Map();
  for (Slot& slot : g_slots) {
    uintptr_t nobody = 0;
    if (!slot.thread.compare_exchange_strong(nobody, self)) continue;
    slot_ = &slot;
    slot.failed.store(!mapped, std::memory_order_relaxed);
    slot.starving.store(starving, std::memory_order_relaxed);
    return;
  }
}

ReserveScope::~ReserveScope() {
  if (slot_ != nullptr) slot_->thread.store(0);
}

ReserveScope::Starving* ReserveScope::starving() {
  const Slot* const slot = SlotOf(Self());
  return slot == nullptr ? nullptr : slot->starving.load(std::memory_order_relaxed);
}

absl::Status CheckReserve() {
  const ReserveScope::Slot* const slot = SlotOf(Self());
  if (slot == nullptr || !slot->failed.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::Status(absl::StatusCode::kResourceExhausted, "");
}

void* MemoryReserve::Take(size_t size, size_t align, void* (*system)(size_t align, size_t size)) {
  ReserveScope::Slot* const slot = SlotOf(Self());
  if (slot == nullptr) return nullptr;
  slot->failed.store(true, std::memory_order_relaxed);
  void* block = TakeRoom(size, align);
  if (block != nullptr) return block;
  ReserveScope::Starving* const starving = slot->starving.load(std::memory_order_relaxed);
  if (starving != nullptr) {
    starving->ever.store(true, std::memory_order_relaxed);
    starving->now.store(true, std::memory_order_relaxed);
  }
  while (block == nullptr) {
    const timespec while_others_release = {0, 10'000'000};
    nanosleep(&while_others_release, nullptr);
    block = system(std::max(align, sizeof(void*)), size);
    if (block == nullptr) block = TakeRoom(size, align);
  }
  if (starving != nullptr) starving->now.store(false, std::memory_order_relaxed);
  return block;
}

void MemoryReserve::Give(void* block) {
  const Header& header = static_cast<Header*>(block)[-1];
  auto* const room = static_cast<Room*>(header.room);
  const uint32_t size_class = header.size_class;
  MutexLock lock(g_mutex);
  g_live -= RoomOf(size_class);
  if (g_live != 0) {
    room->next = g_rooms[size_class];
    g_rooms[size_class] = room;
    return;
  }
  std::fill_n(g_rooms, kClasses, nullptr);
  // The pages go back, except the first few of those who come often.
  constexpr size_t kKept = 64 << 10;
  if (g_used > kKept) {
    madvise(reinterpret_cast<char*>(begin.load(std::memory_order_relaxed)) + kKept, kReserveBytes - kKept,
            MADV_DONTNEED);
  }
  g_used = 0;
}

size_t MemoryReserve::SizeOf(const void* block) { return static_cast<const Header*>(block)[-1].size; }

void MemoryReserve::Note() {
  if (ReserveScope::Slot* const slot = SlotOf(Self())) slot->failed.store(true, std::memory_order_relaxed);
}

size_t MemoryReserve::live() {
  MutexLock lock(g_mutex);
  return g_live;
}

}  // namespace weft
