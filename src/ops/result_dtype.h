// The attribute dtype of layers made of products: what the result is, and what they compute in.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr std::string_view kResultDTypeDoc =
    "element type of the result and of the sums, if it is wider than the operands'; absent: the operands'. f32 keeps "
    "the sums of bf16 factors";

// What the result is: as the attribute says, else as the operands.
template <const auto& schema>
DType ResultDType(const ir::Attrs& attrs, DType operands) {
  return HasAttr<schema, "dtype">(attrs) ? Attr<schema, "dtype">(attrs) : operands;
}

inline absl::Status CheckResultDType(DType dtype, DType operands) {
  if (ir::Contains(ir::kF, dtype)) return absl::OkStatus();
  return UserError("dtype ", NameOf(dtype), " cannot hold products of ", NameOf(operands));
}

// What is computed in.
inline DType Wider(DType a, DType b) { return BitsOf(b) > BitsOf(a) ? b : a; }

}  // namespace weft::ops
