// Handles: what C sees as pointers are slot numbers. A handle packs a slot's index, the generation in which it was given
// out, and a tag of this copy of the library, so that stale, foreign and twice-released handles are defined errors
// everywhere. Looking one up takes no lock: two loads and two compares.
//
// Bits of a handle: 0-3 zero (so that it looks aligned), 4-29 index, 30-51 generation, 52-62 tag, 63 zero.
// Thread rule: any thread. A handle that is being used must not be released meanwhile; that is the caller's contract.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/runtime/ref.h"
#include "src/runtime/status.h"
#include "weft_base.h"

namespace weft::c_api {

enum class HandleType : uint8_t {
  kFree = 0,
  kError,
  kBlob,
  kContext,
  kDevice,
  kEvent,
  kTensor,
  kScope,
  kOptimizer,
  kTree,
  kWriter,
  kReader,
  kCache,
  kPoison,  // a tensor that stands for a failure: looks like one to the caller
};
std::string_view NameOf(HandleType type);

// The table's entry; 32 bytes. `state` = generation << 8 | type, written last when a handle is made and first when it dies.
struct Slot {
  std::atomic<uint32_t> state{0};
  std::atomic<uint32_t> refs{0};
  RefCounted* object = nullptr;
  void (*drop)(RefCounted*) = nullptr;  // releases the handle's reference as the object's class wants it
  uint32_t next_free = 0;
  uint32_t index = 0;
};

// Takes over one reference of the object; the handle carries one reference. Null if memory or the table is exhausted (then
// the object's reference has been dropped).
void* NewHandle(HandleType type, RefCounted* object, void (*drop)(RefCounted*));

// The slot of a live handle of this type, or null.
Slot* FindSlot(const void* handle, HandleType type);
// The type of any live handle of this library, kFree if it is none.
HandleType TypeOf(const void* handle);

// What is wrong with a handle that FindSlot refused: "tensor x is NULL", "… was released", "… is a weft_context".
absl::Status BadHandle(const void* handle, HandleType wanted, std::string_view parameter);

void RetainHandle(const void* handle, HandleType type);
// Drops the object with the last reference. Anything but a live handle is counted and ignored.
void ReleaseHandle(const void* handle, HandleType type);

int64_t BadReleases();
int64_t LiveHandles(HandleType type);

// Which object a C handle stands for: specialised beside each class.
template <typename C>
struct HandleTraits;

// The object behind a handle, borrowed; null if it is no live one of that type.
template <typename C>
typename HandleTraits<C>::Object* Find(const C* handle) {
  Slot* slot = FindSlot(handle, HandleTraits<C>::kType);
  return slot == nullptr ? nullptr : static_cast<typename HandleTraits<C>::Object*>(slot->object);
}

template <typename C>
absl::StatusOr<typename HandleTraits<C>::Object*> Get(const C* handle, std::string_view parameter) {
  auto* object = Find(handle);
  if (object == nullptr) return BadHandle(handle, HandleTraits<C>::kType, parameter);
  return object;
}

// A handle for an object that the caller of C will own.
template <typename C>
absl::StatusOr<C*> Make(Ref<typename HandleTraits<C>::Object> object) {
  using Object = typename HandleTraits<C>::Object;
  void* handle = NewHandle(HandleTraits<C>::kType, object.Release(),
                           [](RefCounted* last) { Ref<Object> dropped(static_cast<Object*>(last)); });
  if (handle == nullptr) return absl::ResourceExhaustedError("out of memory for a handle");
  return static_cast<C*>(handle);
}

}  // namespace weft::c_api
