/* Memory that is shared with other libraries in DLPack's form (version 1), both ways. dlpack.h is not needed here. */
#ifndef LIBWEFT_DLPACK_HPP
#define LIBWEFT_DLPACK_HPP

#include <cstring>

#include "context.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* A tensor's memory, lent: read-only, and good until the last copy of the tensor and this are gone. Its deleter is called at
 * the end, unless release() gave it to another library, which calls it then. Moves; one thread at a time. Since 1.2. */
class lent {
 public:
  lent() noexcept = default;
  explicit lent(DLManagedTensorVersioned* managed) noexcept : managed_(managed) {}
  lent(lent&& other) noexcept : managed_(other.release()) {}
  lent& operator=(lent&& other) noexcept {
    if (this != &other) {
      end();
      managed_ = other.release();
    }
    return *this;
  }
  ~lent() { end(); }

  /* The struct of dlpack.h, borrowed. Since 1.2. */
  [[nodiscard]] DLManagedTensorVersioned* get() const noexcept { return managed_; }
  /* The same, given away: who has it calls its deleter. Since 1.2. */
  [[nodiscard]] DLManagedTensorVersioned* release() noexcept {
    DLManagedTensorVersioned* const managed = managed_;
    managed_ = nullptr;
    return managed;
  }

 private:
  void end() noexcept {
    if (managed_ == nullptr) return;
    // DLPack fixes the place of the deleter: behind two 32-bit numbers and the owner's pointer.
    void (*deleter)(DLManagedTensorVersioned*) = nullptr;
    std::memcpy(&deleter, reinterpret_cast<const unsigned char*>(managed_) + 8 + sizeof(void*), sizeof deleter);
    if (deleter != nullptr) deleter(managed_);
    managed_ = nullptr;
  }
  DLManagedTensorVersioned* managed_ = nullptr;
};

[[nodiscard]] inline result<lent> try_to_dlpack(const tensor& x) {
  DLManagedTensorVersioned* out = nullptr;
  if (weft_error* raw = weft_tensor_to_dlpack(x.get(), &out)) return result<lent>(raw);
  return lent(out);
}
/* Computes x and lends its memory without a copy. Errors: unimplemented for a device that is not the host, … Blocks.
 * Since 1.2. */
[[nodiscard]] inline lent to_dlpack(const tensor& x) { return detail::must(try_to_dlpack(x)); }

[[nodiscard]] inline result<tensor> try_from_dlpack(const context& ctx, lent managed) {
  weft_tensor* out = nullptr;
  weft_error* raw = weft_tensor_from_dlpack(ctx.get(), managed.get(), &out);
  if (raw == nullptr) static_cast<void>(managed.release());  // The library calls the deleter from here on.
  return detail::made(raw, ctx.get(), out);
}
/* A tensor of memory of another library, without a copy where alignment and strides allow. Its deleter is called once, when
 * nothing needs the memory any more, or here if this fails: weft::from_dlpack(ctx, weft::lent(managed)). Errors:
 * invalid_argument, unimplemented. Since 1.2. */
[[nodiscard]] inline tensor from_dlpack(const context& ctx, lent managed) {
  return detail::must(try_from_dlpack(ctx, std::move(managed)));
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_DLPACK_HPP
