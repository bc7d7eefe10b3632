// Handles: what C sees as pointers are slot numbers. A handle packs a slot's index, the generation in which it was given
// out, and a tag of this copy of the library, so that stale, foreign and twice-released handles are defined errors
// everywhere, also while another thread releases what this one uses.
//
// Bits of a handle: 0-3 zero (so that it looks aligned), 4-29 index, 30-51 generation, 52-62 tag, 63 zero.
//
// A call keeps its arguments alive. One word of the slot has generation, type, references and pins, so nothing can come
// between finding an object and pinning it: a pin is one compare-and-swap, taking it back one subtraction. A handle whose
// references are gone is no handle any more; its object goes with the last pin. Tensor operands are not pinned but borrowed:
// they are looked up under the lock of their engine, under which alone tensors are deleted, with loads and compares only.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "src/runtime/fork.h"
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
  kFunction,
  kMesh,
  kJob,
  kDataset,
  kSampler,
  kLoader,
  kPoison,  // a tensor that stands for a failure: looks like one to the caller
};
std::string_view NameOf(HandleType type);

// The table's entry; 32 bytes. `word` is written last when a handle is made and first when it dies; see handles.cc.
struct Slot {
  std::atomic<uint64_t> word{0};
  std::atomic<RefCounted*> object{nullptr};
  std::atomic<const void*> owner{nullptr};  // under whose lock the object dies: a tensor's engine
  std::atomic<uint32_t> next{0};            // in the list of the free, or of those left behind
  uint32_t index = 0;
};

// Takes over one reference of the object; the handle carries one reference. Null if memory or the table is exhausted (then
// the object's reference has been dropped).
void* NewHandle(HandleType type, RefCounted* object, const void* owner = nullptr);

// The slot of a live handle of this type with one more pin, or null.
Slot* PinSlot(const void* handle, HandleType type);
// The last one ends the object if its references are gone.
void Unpin(Slot* slot);
// The same where nothing may be ended, as in a signal handler: the next call that makes or releases a context does it.
void UnpinInSignal(Slot* slot);
// The object of a live handle of this type and owner, or null; stays only as long as the owner's lock is held.
RefCounted* Borrow(const void* handle, HandleType type, const void* owner);
// The type of any live handle of this library, kFree if it is none.
HandleType TypeOf(const void* handle);

// Says what is wrong with a handle that was refused: "tensor x is NULL", "… was released", "… is a weft_context".
absl::Status BadHandle(const void* handle, HandleType wanted, std::string_view parameter);

// False, counted and otherwise ignored: anything but a live handle. A handle with two million references keeps them for good.
bool RetainHandle(const void* handle, HandleType type);
// The thread that ends an object which others have pinned when its last reference goes.
enum class LastOne : uint8_t {
  kUnpins,  // the last of them
  kWaits,   // the releasing thread, after waiting for them
};
bool ReleaseHandle(const void* handle, HandleType type, LastOne last = LastOne::kUnpins);

int64_t BadReleases();
int64_t LiveHandles(HandleType type);
int64_t LiveHandles();  // of all types, but for tensors that stand for a failure: one of them is for good

// Which object a C handle stands for: specialised beside each class.
template <typename C>
struct HandleTraits;

// An object that lives at least as long as this does. Thread rule: one thread.
template <typename T>
class [[nodiscard]] Pin {
 public:
  Pin() = default;
  Pin(Slot* slot, T* object) : slot_(slot), object_(object) {}
  Pin(Pin&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)), object_(other.object_) {}
  Pin& operator=(Pin&& other) noexcept {
    std::swap(slot_, other.slot_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Pin() {
    if (slot_ != nullptr) Unpin(slot_);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return slot_ != nullptr; }
  // Returns a reference, for objects that are kept longer, or in numbers: a handle can be pinned 32,767 times at once.
  Ref<T> Share() const { return Ref<T>::Share(object_); }
  Slot* Release() { return std::exchange(slot_, nullptr); }

 private:
  Slot* slot_ = nullptr;
  T* object_ = nullptr;
};

// Tells whether the object is of a context that was used before the process forked: then locks may be held, and threads
// be waited for, that are not here. The traits say by `ForkOf` of which context the object is (null: of none); objects
// that never belong to a context have no ForkOf.
template <typename C>
bool StayedBehind(const typename HandleTraits<C>::Object& object) {
  if constexpr (requires { HandleTraits<C>::ForkOf(object); }) {
    if (!IsForked()) [[likely]]
      return false;
    const ForkGuard* const fork = HandleTraits<C>::ForkOf(object);
    return fork != nullptr && fork->Forked();
  }
  return false;
}

// Pins a handle of that type; empty if it is no live one.
template <typename T>
Pin<T> FindAs(const void* handle, HandleType type) {
  Slot* slot = PinSlot(handle, type);
  if (slot == nullptr) return {};
  return {slot, static_cast<T*>(slot->object.load(std::memory_order_relaxed))};
}

// The door that every handle comes in by: nothing that stayed behind when the process forked goes through. Get says why
// it is empty.
template <typename C>
Pin<typename HandleTraits<C>::Object> Find(const C* handle) {
  auto found = FindAs<typename HandleTraits<C>::Object>(handle, HandleTraits<C>::kType);
  if (found && StayedBehind<C>(*found)) return {};
  return found;
}

template <typename C>
absl::StatusOr<Pin<typename HandleTraits<C>::Object>> Get(const C* handle, std::string_view parameter) {
  auto found = FindAs<typename HandleTraits<C>::Object>(handle, HandleTraits<C>::kType);
  if (!found) return BadHandle(handle, HandleTraits<C>::kType, parameter);
  if (StayedBehind<C>(*found)) return ForkGuard::Refusal();
  return found;
}

// A handle for an object that the caller of C will own.
template <typename C>
absl::StatusOr<C*> Make(Ref<typename HandleTraits<C>::Object> object) {
  using Traits = HandleTraits<C>;
  const void* owner = nullptr;
  if constexpr (requires { Traits::OwnerOf(*object); }) owner = Traits::OwnerOf(*object);
  void* handle = NewHandle(Traits::kType, object.Release(), owner);
  if (handle == nullptr) return absl::ResourceExhaustedError("out of memory for a handle");
  return static_cast<C*>(handle);
}

}  // namespace weft::c_api
