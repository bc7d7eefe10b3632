// Type modes of a context: elements that the caller sees as one type and the device holds as a shorter one (f32 as bf16, i64 as
// i32). Off unless an option says so; what PyTorch/XLA calls XLA_USE_BF16, XLA_DOWNCAST_BF16 and XLA_USE_32BIT_LONG.
#pragma once

#include <cstddef>
#include <span>

#include "src/runtime/dtype.h"

namespace weft {

struct HeldTypes {
  DType f32 = DType::kF32;  // or bf16
  DType f64 = DType::kF64;  // or f32, bf16
  DType i64 = DType::kI64;  // or i32
  DType u64 = DType::kU64;  // or u32

  // Returns the type that the device holds for the caller's type; most types are held as they are.
  constexpr DType Of(DType dtype) const {
    switch (dtype) {
      case DType::kF32: return f32;
      case DType::kF64: return f64;
      case DType::kI64: return i64;
      case DType::kU64: return u64;
      default: return dtype;
    }
  }
  constexpr bool any() const { return *this != HeldTypes{}; }
  friend constexpr bool operator==(const HeldTypes&, const HeldTypes&) = default;
};

// Tells whether some mode holds `seen` as `held`, another type.
bool IsHeldAs(DType seen, DType held);

// Elements on their way down and back up, for types of which one is held as the other: floats round to nearest even, once, and
// integers wrap. Both spans have as many elements and do not overlap; they need no alignment.
void ConvertHeld(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

}  // namespace weft
