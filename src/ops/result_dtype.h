// The attribute dtype of products and of layers made of them: what the result is, and what they compute in.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr std::string_view kResultDTypeDoc =
    "element type of the result and of the sums, if it is wider than the operands'; absent: the operands'. f32 keeps "
    "the sums of bf16 factors, i32 those of i8, u8 and i16";

// Returns the result's type: the attribute's, or the operands' where it is absent.
template <const auto& schema>
DType ResultDType(const ir::Attrs& attrs, DType operands) {
  return HasAttr<schema, "dtype">(attrs) ? Attr<schema, "dtype">(attrs) : operands;
}

inline absl::Status CheckResultDType(DType dtype, DType operands) {
  const auto refuse = [&](std::string_view able) {
    return UserError("dtype ", NameOf(dtype), " cannot hold products of ", NameOf(operands), "; ", able);
  };
  if (IsFloat(operands)) return IsFloat(dtype) ? absl::OkStatus() : refuse("a float type can");
  if (IsComplex(operands)) return IsComplex(dtype) ? absl::OkStatus() : refuse("c64 or c128 can");
  if (IsBool(operands)) return IsBool(dtype) ? absl::OkStatus() : refuse("bool can");
  return IsInteger(dtype) || IsFloat(dtype) ? absl::OkStatus() : refuse("an integer or a float type can");
}

// Returns the type to compute in.
inline DType Wider(DType a, DType b) { return BitsOf(b) > BitsOf(a) ? b : a; }
// Does the same for integers, whose products no float but f64 adds up without a word.
inline DType SumDType(DType operands, DType result) {
  return IsInteger(operands) && IsFloat(result) ? DType::kF64 : Wider(operands, result);
}

// Returns the type in which the gradients of products are computed. Factors of bf16 stay factors of bf16 where the sums
// are f32; a cotangent of f64 or c128 may hold values that shorter factors cannot.
inline DType GradientDType(DType factor, DType result) { return BitsOf(PartOf(result)) == 64 ? result : factor; }

}  // namespace weft::ops
