// The slot table: segments that are never freed, a lock-free free list, generations, pins.
#include "src/c_api/handles.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "src/lazy/value/tensor.h"

namespace weft::c_api {
namespace {

constexpr int kIndexBits = 26, kGenerationBits = 22, kTagBits = 11;
constexpr uint32_t kSegmentSlots = 4096;  // 128 KiB a segment
constexpr uint32_t kSegments = (1u << kIndexBits) / kSegmentSlots;
constexpr uint32_t kMaxGeneration = (1u << kGenerationBits) - 1;

// A slot's word: bits 0-14 pins, 15 somebody waits for them, 16-36 references, 37-41 type, 42-63 generation. Pins and the
// type outlive the references, the generation outlives all.
constexpr int kTypeShift = 37, kGenerationShift = 42;
constexpr uint64_t kTypes = (1u << (kGenerationShift - kTypeShift)) - 1;
static_assert(static_cast<uint64_t>(HandleType::kPoison) <= kTypes, "a type has so many bits of the word");
constexpr uint64_t kPin = 1, kPins = 0x7FFF, kWaited = 0x8000;
constexpr uint64_t kReference = 0x10000, kReferences = uint64_t{0x1FFFFF} << 16;

// Process-wide, made on first use, never torn down: releases may come after main has returned. Zero-initialised memory.
constinit std::atomic<Slot*> g_segments[kSegments] = {};
// Head of the free list: index + 1 in the low half (0 = empty), a counter against ABA in the high half.
constinit std::atomic<uint64_t> g_free{0};
constinit std::atomic<uint32_t> g_used{0};      // indices handed out at least once
constinit std::atomic<uint32_t> g_left{0};      // index + 1 of the slots that a signal handler was the last to pin
constinit std::atomic<uint32_t> g_unpinned{0};  // goes up when pins are gone for which somebody waits
constinit std::atomic<int64_t> g_bad_releases{0};

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
    const uint32_t next = slot->next.load(std::memory_order_relaxed);
    const uint64_t wanted = ((head >> 32) + 1) << 32 | next;
    if (g_free.compare_exchange_weak(head, wanted, std::memory_order_acq_rel, std::memory_order_acquire)) return slot;
  }
  return nullptr;
}

void PushFree(Slot* slot) {
  uint64_t head = g_free.load(std::memory_order_relaxed);
  uint64_t wanted;
  do {
    slot->next.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
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

// Returns the bits that the slot's word shows above its counts while the handle lives.
uint64_t Above(const void* handle, HandleType type) {
  const uint64_t generation = reinterpret_cast<uintptr_t>(handle) >> (4 + kIndexBits) & kMaxGeneration;
  return generation << (kGenerationShift - kTypeShift) | static_cast<uint64_t>(type);
}
HandleType TypeIn(uint64_t word) { return static_cast<HandleType>(word >> kTypeShift & kTypes); }
bool Lives(uint64_t word, uint64_t above) { return word >> kTypeShift == above && (word & kReferences) != 0; }

uint32_t IndexOf(const void* handle) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle) >> 4) & ((1u << kIndexBits) - 1);
}

// The slot that a handle of ours names, whatever lives there; null if it is none of ours.
inline __attribute__((always_inline)) Slot* SlotOf(const void* handle) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(handle);
  if (bits >> (4 + kIndexBits + kGenerationBits) != Tag() || (bits & 15) != 0) return nullptr;
  return SlotAt(IndexOf(handle));
}

// The same; `type` gets what lives there by this handle, kFree if nothing does.
Slot* AnySlot(const void* handle, HandleType* type) {
  *type = HandleType::kFree;
  Slot* slot = SlotOf(handle);
  if (slot == nullptr) return nullptr;
  const uint64_t word = slot->word.load(std::memory_order_acquire);
  const auto lives = TypeIn(word);
  if (Lives(word, Above(handle, lives))) *type = lives;
  return slot;
}

// Serves retaining and releasing, which need not know of poison.
bool LivesAs(uint64_t word, const void* handle, HandleType wanted) {
  return Lives(word, Above(handle, wanted)) ||
         (wanted == HandleType::kTensor && Lives(word, Above(handle, HandleType::kPoison)));
}

bool Refuse() {
  g_bad_releases.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void Drop(HandleType type, RefCounted* object) {
  if (type == HandleType::kTensor) {
    const Ref<lazy::Tensor> last(static_cast<lazy::Tensor*>(object));  // the one class that dies in its own way
  } else {
    const Ref<RefCounted> last(object);
  }
}

// No reference and no pin is left, so nobody else touches the slot.
void End(Slot* slot) {
  const uint64_t word = slot->word.load(std::memory_order_relaxed);
  RefCounted* object = slot->object.load(std::memory_order_relaxed);
  slot->word.store(word >> kGenerationShift << kGenerationShift, std::memory_order_release);
  // A slot whose generations run out rests for ever: 32 bytes per 4 million handles.
  if (word >> kGenerationShift < kMaxGeneration) PushFree(slot);
  Drop(TypeIn(word), object);
}

// One pin less; whether the object is now to be ended, and that is not the business of somebody who waits.
bool TakeBack(Slot* slot) {
  const uint64_t before = slot->word.fetch_sub(kPin, std::memory_order_acq_rel);
  if ((before & (kReferences | kPins)) != kPin) return false;
  if ((before & kWaited) == 0) return true;
  g_unpinned.fetch_add(1, std::memory_order_release);
  g_unpinned.notify_all();
  return false;
}

void EndThoseLeft() {
  if (g_left.load(std::memory_order_relaxed) == 0) return;
  uint32_t at = g_left.exchange(0, std::memory_order_acquire);
  while (at != 0) {
    Slot* slot = SlotAt(at - 1);
    at = slot->next.load(std::memory_order_relaxed);
    End(slot);
  }
}

void WaitForPins(Slot* slot) {
  while (true) {
    const uint32_t seen = g_unpinned.load(std::memory_order_acquire);
    if ((slot->word.load(std::memory_order_acquire) & kPins) == 0) return;
    g_unpinned.wait(seen, std::memory_order_acquire);
  }
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
    case HandleType::kFunction: return "weft_function";
    case HandleType::kMesh: return "weft_mesh";
    case HandleType::kJob: return "weft_job";
    case HandleType::kDataset: return "weft_dataset";
    case HandleType::kSampler: return "weft_sampler";
    case HandleType::kLoader: return "weft_loader";
  }
  return "nothing";
}

void* NewHandle(HandleType type, RefCounted* object, const void* owner) {
  if (type == HandleType::kContext) EndThoseLeft();
  Slot* slot = PopFree();
  if (slot == nullptr) slot = FreshSlot();
  if (slot == nullptr) {
    Drop(type, object);
    return nullptr;
  }
  const uint64_t generation = (slot->word.load(std::memory_order_relaxed) >> kGenerationShift) + 1;
  // A reader that still borrows by the slot's last handle and sees one of these also sees that handle's end.
  slot->object.store(object, std::memory_order_release);
  slot->owner.store(owner, std::memory_order_release);
  slot->word.store(generation << kGenerationShift | static_cast<uint64_t>(type) << kTypeShift | kReference,
                   std::memory_order_release);
  const uint64_t bits = Tag() << (4 + kIndexBits + kGenerationBits) | generation << (4 + kIndexBits) |
                        static_cast<uint64_t>(slot->index) << 4;
  return reinterpret_cast<void*>(bits);
}

Slot* PinSlot(const void* handle, HandleType type) {
  Slot* slot = SlotOf(handle);
  if (slot == nullptr) return nullptr;
  const uint64_t above = Above(handle, type);
  uint64_t word = slot->word.load(std::memory_order_relaxed);
  do {
    if (!Lives(word, above) || (word & kPins) == kPins) return nullptr;
  } while (!slot->word.compare_exchange_weak(word, word + kPin, std::memory_order_acquire, std::memory_order_relaxed));
  return slot;
}

void Unpin(Slot* slot) {
  if (TakeBack(slot)) End(slot);
}

void UnpinInSignal(Slot* slot) {
  if (!TakeBack(slot)) return;
  uint32_t head = g_left.load(std::memory_order_relaxed);
  do {
    slot->next.store(head, std::memory_order_relaxed);
  } while (!g_left.compare_exchange_weak(head, slot->index + 1, std::memory_order_release, std::memory_order_relaxed));
}

RefCounted* Borrow(const void* handle, HandleType type, const void* owner) {
  Slot* slot = SlotOf(handle);
  if (slot == nullptr) return nullptr;
  const uint64_t above = Above(handle, type);
  if (!Lives(slot->word.load(std::memory_order_acquire), above)) return nullptr;
  RefCounted* object = slot->object.load(std::memory_order_acquire);
  const bool owned = slot->owner.load(std::memory_order_acquire) == owner;
  // Released before this, the slot may have had another handle's object; after it, the object waits for the owner's lock.
  return owned && Lives(slot->word.load(std::memory_order_relaxed), above) ? object : nullptr;
}

HandleType TypeOf(const void* handle) {
  HandleType type;
  AnySlot(handle, &type);
  return type;
}

absl::Status BadHandle(const void* handle, HandleType wanted, std::string_view parameter) {
  if (handle == nullptr) return UserError(parameter, " is NULL; a ", NameOf(wanted), " is needed");
  HandleType type;
  const Slot* slot = AnySlot(handle, &type);
  if (type == wanted) {
    return absl::ResourceExhaustedError(
        absl::StrCat(parameter, " is a ", NameOf(wanted), " that 32767 calls in progress use already"));
  }
  if (type != HandleType::kFree)
    return UserError(parameter, " is a ", NameOf(type), "; a ", NameOf(wanted), " is needed");
  if (slot != nullptr && IndexOf(handle) < g_used.load(std::memory_order_relaxed))
    return UserError(parameter, " is a ", NameOf(wanted), " that has been released");
  return UserError(parameter, " is no handle of this library; a ", NameOf(wanted), " is needed");
}

bool RetainHandle(const void* handle, HandleType wanted) {
  if (handle == nullptr) return false;
  Slot* slot = SlotOf(handle);
  if (slot == nullptr) return Refuse();
  uint64_t word = slot->word.load(std::memory_order_relaxed);
  do {
    if (!LivesAs(word, handle, wanted)) return Refuse();
    if ((word & kReferences) == kReferences) return true;
  } while (!slot->word.compare_exchange_weak(word, word + kReference, std::memory_order_relaxed));
  return true;
}

bool ReleaseHandle(const void* handle, HandleType wanted, LastOne last) {
  if (handle == nullptr) return false;
  if (wanted == HandleType::kContext) EndThoseLeft();
  Slot* slot = SlotOf(handle);
  if (slot == nullptr) return Refuse();
  uint64_t word = slot->word.load(std::memory_order_relaxed), left;
  do {
    // Two threads that both release the last reference: the second finds none.
    if (!LivesAs(word, handle, wanted)) return Refuse();
    if ((word & kReferences) == kReferences) return true;
    left = word - kReference;
    if ((left & kReferences) == 0 && (left & kPins) != 0 && last == LastOne::kWaits) left |= kWaited;
  } while (!slot->word.compare_exchange_weak(word, left, std::memory_order_acq_rel, std::memory_order_relaxed));
  if ((left & kReferences) != 0) return true;
  if ((left & kWaited) != 0) WaitForPins(slot);
  if ((left & kPins) == 0 || (left & kWaited) != 0) End(slot);
  return true;
}

int64_t BadReleases() { return g_bad_releases.load(std::memory_order_relaxed); }

namespace {

// Counted when somebody asks, so that making and releasing a handle costs no shared counter.
template <typename Counts>
int64_t CountLive(Counts&& counts) {
  int64_t live = 0;
  const uint32_t used = std::min(g_used.load(std::memory_order_relaxed), kSegments * kSegmentSlots);
  for (uint32_t index = 0; index < used; ++index) {
    const Slot* slot = SlotAt(index);
    if (slot == nullptr) continue;
    const uint64_t word = slot->word.load(std::memory_order_relaxed);
    if (counts(TypeIn(word)) && (word & kReferences) != 0) ++live;
  }
  return live;
}

}  // namespace

int64_t LiveHandles(HandleType type) {
  return CountLive([type](HandleType of) { return of == type; });
}
int64_t LiveHandles() {
  return CountLive([](HandleType of) { return of != HandleType::kPoison; });
}

}  // namespace weft::c_api
