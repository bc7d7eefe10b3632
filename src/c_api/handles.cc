// The slot table: segments that are never freed, a lock-free free list, generations.
#include "src/c_api/handles.h"

#include <cstdlib>
#include <new>

namespace weft::c_api {
namespace {

constexpr int kIndexBits = 26, kGenerationBits = 22, kTagBits = 11;
constexpr uint32_t kSegmentSlots = 4096;  // 128 KiB a segment
constexpr uint32_t kSegments = (1u << kIndexBits) / kSegmentSlots;
constexpr uint32_t kMaxGeneration = (1u << kGenerationBits) - 1;
constexpr uint32_t kNone = 0xFFFFFFFF;

// Process-wide, made on first use, never torn down: releases may come after main has returned. Zero-initialised memory.
constinit std::atomic<Slot*> g_segments[kSegments] = {};
// Head of the free list: index + 1 in the low half (0 = empty), a counter against ABA in the high half.
constinit std::atomic<uint64_t> g_free{0};
constinit std::atomic<uint32_t> g_used{0};  // indices handed out at least once
constinit std::atomic<int64_t> g_bad_releases{0};
constinit std::atomic<int64_t> g_live[16] = {};

// Differs between copies of the library in one process, because their data lie elsewhere (but for one chance in 1,024).
uint64_t Tag() {
  const uint64_t tag = (reinterpret_cast<uintptr_t>(&g_free) * 0x9E3779B97F4A7C15ull) >> (64 - kTagBits);
  return tag | 1;  // never zero: no address of the process looks like a handle
}

Slot* SlotAt(uint32_t index) {
  Slot* segment = g_segments[index / kSegmentSlots].load(std::memory_order_acquire);
  return segment == nullptr ? nullptr : segment + index % kSegmentSlots;
}

Slot* PopFree() {
  uint64_t head = g_free.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(head) != 0) {
    Slot* slot = SlotAt(static_cast<uint32_t>(head) - 1);
    const uint32_t next = std::atomic_ref(slot->next_free).load(std::memory_order_relaxed);
    const uint64_t wanted = ((head >> 32) + 1) << 32 | next;
    if (g_free.compare_exchange_weak(head, wanted, std::memory_order_acq_rel, std::memory_order_acquire)) return slot;
  }
  return nullptr;
}

void PushFree(Slot* slot) {
  uint64_t head = g_free.load(std::memory_order_relaxed);
  uint64_t wanted;
  do {
    std::atomic_ref(slot->next_free).store(static_cast<uint32_t>(head), std::memory_order_relaxed);
    wanted = ((head >> 32) + 1) << 32 | (slot->index + 1);
  } while (!g_free.compare_exchange_weak(head, wanted, std::memory_order_acq_rel, std::memory_order_relaxed));
}

Slot* FreshSlot() {
  const uint32_t index = g_used.fetch_add(1, std::memory_order_relaxed);
  if (index >= kSegments * kSegmentSlots) {
    g_used.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  std::atomic<Slot*>& segment = g_segments[index / kSegmentSlots];
  if (segment.load(std::memory_order_acquire) == nullptr) {
    Slot* fresh = new (std::nothrow) Slot[kSegmentSlots];
    if (fresh == nullptr) return nullptr;  // the index is lost; 32 bytes of a table of 64 million
    Slot* expected = nullptr;
    if (!segment.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) delete[] fresh;
  }
  Slot* slot = SlotAt(index);
  slot->index = index;
  return slot;
}

}  // namespace

std::string_view NameOf(HandleType type) {
  switch (type) {
    case HandleType::kFree: return "nothing";
    case HandleType::kError: return "weft_error";
    case HandleType::kBlob: return "weft_blob";
    case HandleType::kContext: return "weft_context";
    case HandleType::kDevice: return "weft_device";
    case HandleType::kEvent: return "weft_event";
    case HandleType::kTensor:
    case HandleType::kPoison: return "weft_tensor";
    case HandleType::kScope: return "weft_scope";
    case HandleType::kOptimizer: return "weft_optimizer";
    case HandleType::kTree: return "weft_tree";
    case HandleType::kWriter: return "weft_checkpoint_writer";
    case HandleType::kReader: return "weft_checkpoint_reader";
    case HandleType::kCache: return "weft_cache";
  }
  return "nothing";
}

void* NewHandle(HandleType type, RefCounted* object, void (*drop)(RefCounted*)) {
  Slot* slot = PopFree();
  if (slot == nullptr) slot = FreshSlot();
  if (slot == nullptr) {
    drop(object);
    return nullptr;
  }
  const uint32_t generation = (slot->state.load(std::memory_order_relaxed) >> 8) + 1;
  slot->object = object;
  slot->drop = drop;
  slot->refs.store(1, std::memory_order_relaxed);
  slot->state.store(generation << 8 | static_cast<uint32_t>(type), std::memory_order_release);
  g_live[static_cast<int>(type)].fetch_add(1, std::memory_order_relaxed);
  const uint64_t bits = Tag() << (4 + kIndexBits + kGenerationBits) |
                        static_cast<uint64_t>(generation) << (4 + kIndexBits) | static_cast<uint64_t>(slot->index) << 4;
  return reinterpret_cast<void*>(bits);
}

namespace {

// The slot whatever the type, or null; `type` gets what lives there.
Slot* AnySlot(const void* handle, HandleType* type) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(handle);
  if (bits >> (4 + kIndexBits + kGenerationBits) != Tag() || (bits & 15) != 0) return nullptr;
  Slot* slot = SlotAt(static_cast<uint32_t>(bits >> 4) & ((1u << kIndexBits) - 1));
  if (slot == nullptr) return nullptr;
  const uint32_t state = slot->state.load(std::memory_order_acquire);
  if (state >> 8 != (static_cast<uint32_t>(bits >> (4 + kIndexBits)) & kMaxGeneration)) return nullptr;
  *type = static_cast<HandleType>(state & 0xFF);
  return *type == HandleType::kFree ? nullptr : slot;
}

bool Ours(const void* handle) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(handle);
  return bits >> (4 + kIndexBits + kGenerationBits) == Tag() && (bits & 15) == 0 &&
         ((bits >> 4) & ((1u << kIndexBits) - 1)) < g_used.load(std::memory_order_relaxed);
}

}  // namespace

Slot* FindSlot(const void* handle, HandleType wanted) {
  HandleType type;
  Slot* slot = AnySlot(handle, &type);
  return slot != nullptr && type == wanted ? slot : nullptr;
}

HandleType TypeOf(const void* handle) {
  HandleType type;
  return AnySlot(handle, &type) == nullptr ? HandleType::kFree : type;
}

absl::Status BadHandle(const void* handle, HandleType wanted, std::string_view parameter) {
  if (handle == nullptr) return UserError(parameter, " is NULL; a ", NameOf(wanted), " is needed");
  const HandleType type = TypeOf(handle);
  if (type != HandleType::kFree)
    return UserError(parameter, " is a ", NameOf(type), "; a ", NameOf(wanted), " is needed");
  if (Ours(handle)) return UserError(parameter, " is a ", NameOf(wanted), " that has been released");
  return UserError(parameter, " is no handle of this library; a ", NameOf(wanted), " is needed");
}

void RetainHandle(const void* handle, HandleType wanted) {
  if (handle == nullptr) return;
  HandleType type;
  Slot* slot = AnySlot(handle, &type);
  if (slot == nullptr || (type != wanted && !(wanted == HandleType::kTensor && type == HandleType::kPoison))) {
    g_bad_releases.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  slot->refs.fetch_add(1, std::memory_order_relaxed);
}

void ReleaseHandle(const void* handle, HandleType wanted) {
  if (handle == nullptr) return;
  HandleType type;
  Slot* slot = AnySlot(handle, &type);
  if (slot == nullptr || (type != wanted && !(wanted == HandleType::kTensor && type == HandleType::kPoison))) {
    g_bad_releases.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  // Two threads that both release the last reference: the second finds zero and is counted, not underflowed.
  uint32_t refs = slot->refs.load(std::memory_order_relaxed);
  do {
    if (refs == 0) {
      g_bad_releases.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  } while (!slot->refs.compare_exchange_weak(refs, refs - 1, std::memory_order_acq_rel));
  if (refs != 1) return;
  RefCounted* object = slot->object;
  void (*drop)(RefCounted*) = slot->drop;
  slot->object = nullptr;
  const uint32_t generation = slot->state.load(std::memory_order_relaxed) >> 8;
  slot->state.store(generation << 8, std::memory_order_release);
  g_live[static_cast<int>(type)].fetch_sub(1, std::memory_order_relaxed);
  // A slot whose generations run out rests for ever: 32 bytes per 4 million handles.
  if (generation < kMaxGeneration) PushFree(slot);
  drop(object);
}

int64_t BadReleases() { return g_bad_releases.load(std::memory_order_relaxed); }
int64_t LiveHandles(HandleType type) { return g_live[static_cast<int>(type)].load(std::memory_order_relaxed); }

}  // namespace weft::c_api
