// Intrusive reference counts: one word in the object, atomic, no control block. Recording makes about one object an
// operation, so the 32 bytes and the second allocation of a shared_ptr would show.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace weft {

// Base of everything shared. Thread rule: the count may be changed from any thread; the rest is the subclass's business.
class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void AddRef() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  // Tables that find objects which they do not own use this: false if the last reference is gone, though the object may
  // still be there.
  bool TryAddRef() const {
    uint32_t refs = refs_.load(std::memory_order_relaxed);
    while (refs != 0 && !refs_.compare_exchange_weak(refs, refs + 1, std::memory_order_relaxed)) {
    }
    return refs != 0;
  }
  // Returns whether this was the last reference; the caller then destroys the object.
  bool DropRef() const { return refs_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  // More than one reference; means something only while the caller keeps others from making references.
  bool shared() const { return refs_.load(std::memory_order_acquire) != 1; }

  // How an object of the class dies; classes with deep ownership chains hide this by an iterative one.
  static void Destroy(const RefCounted* object) { delete object; }

 protected:
  RefCounted() = default;
  virtual ~RefCounted() = default;

 private:
  mutable std::atomic<uint32_t> refs_{1};
};

// A counted pointer. `Ref<T>(new T)` adopts the first reference.
template <typename T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}  // NOLINT: like a raw pointer
  explicit Ref(T* adopted) : pointer_(adopted) {}
  Ref(const Ref& other) : pointer_(other.pointer_) {
    if (pointer_ != nullptr) pointer_->AddRef();
  }
  Ref(Ref&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  template <typename U>
    requires std::is_convertible_v<U*, T*>
  Ref(const Ref<U>& other) : pointer_(other.get()) {  // NOLINT: upcast
    if (pointer_ != nullptr) pointer_->AddRef();
  }
  template <typename U>
    requires std::is_convertible_v<U*, T*>
  Ref(Ref<U>&& other) noexcept : pointer_(other.Release()) {}  // NOLINT: upcast
  Ref& operator=(Ref other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Ref() {
    if (pointer_ != nullptr && pointer_->DropRef()) T::Destroy(pointer_);
  }

  // A new reference to an object that somebody else owns too.
  static Ref Share(T* object) {
    if (object != nullptr) object->AddRef();
    return Ref(object);
  }
  // Gives the reference away without dropping it.
  T* Release() { return std::exchange(pointer_, nullptr); }

  T* get() const { return pointer_; }
  T* operator->() const { return pointer_; }
  T& operator*() const { return *pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.pointer_ == b.pointer_; }
  friend bool operator==(const Ref& a, std::nullptr_t) { return a.pointer_ == nullptr; }

 private:
  T* pointer_ = nullptr;
};

template <typename T, typename... Args>
Ref<T> MakeRef(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace weft
