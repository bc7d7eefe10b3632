// See narrow_codes.h.
#include "src/ops/narrow_codes.h"

#include <cmath>

#include "src/runtime/narrow.h"

namespace weft::ops {

using ir::Builder;
using ir::Value;

Value BitsAs(Builder& b, const Value& x, DType dtype) { return Call(b, kOp_bitcast_convert, {x}, {dtype}); }

namespace {

// --- Short spellings: numbers of the operand's type.

Value Number(Builder& b, const Value& like, uint32_t value) { return FullLike(b, like, value); }
Value AndBits(Builder& b, const Value& x, uint32_t mask) { return And(b, x, Number(b, x, mask)); }
Value OrBits(Builder& b, const Value& x, const Value& y) { return Call(b, kOp_bitwise_or, {x, y}); }
Value Left(Builder& b, const Value& x, int bits) {
  return Call(b, kOp_shift_left, {x, Number(b, x, static_cast<uint32_t>(bits))});
}
Value Right(Builder& b, const Value& x, int bits) {
  return Call(b, kOp_shift_right_logical, {x, Number(b, x, static_cast<uint32_t>(bits))});
}
Value Is(Builder& b, const Value& x, Direction direction, uint32_t value) {
  return Compare(b, direction, x, Number(b, x, value));
}
Value Pick(Builder& b, const Value& condition, uint32_t value, const Value& otherwise) {
  return Select(b, condition, Number(b, otherwise, value), otherwise);
}

constexpr uint32_t kInfinity = 0x7F800000, kNan = 0x7FC00000;

// --- f8: the same steps as FloatToF8 and F8ToFloat (runtime/narrow.h), which the reference computes with.

Value F8ToF32(Builder& b, DType dtype, const Value& stored) {
  using enum Direction;
  const Value code = Convert(b, stored, DType::kU32);
  if (dtype == DType::kF8E8M0FNU) {
    const Value bits = Pick(b, Is(b, code, kEq, 0), 0x400000, Left(b, code, 23));
    return BitsAs(b, Pick(b, Is(b, code, kEq, 0xFF), kNan, bits), DType::kF32);
  }
  const SmallFloat& f = SmallFloatOf(dtype);
  const Value magnitude = AndBits(b, code, 0x7F);
  const Value exponents = Number(b, code, static_cast<uint32_t>(127 - f.bias) << 23);
  const Value normal = Add(b, Left(b, magnitude, 23 - f.fraction), exponents);
  const Value least = Mul(b, Convert(b, magnitude, DType::kF32), std::ldexp(1, 1 - f.bias - f.fraction));
  Value bits = Select(b, Is(b, magnitude, kLt, 1u << f.fraction), BitsAs(b, least, DType::kU32), normal);
  if (!f.one_nan) {
    bits = Pick(b, Is(b, magnitude, kGt, f.most), kNan, bits);
    if (f.beyond != f.nan) bits = Pick(b, Is(b, magnitude, kEq, f.beyond), kInfinity, bits);
  }
  bits = OrBits(b, bits, Left(b, Right(b, code, 7), 31));
  if (f.one_nan) bits = Pick(b, Is(b, code, kEq, 0x80), kNan | 0x80000000, bits);
  return BitsAs(b, bits, DType::kF32);
}

Value F32ToF8(Builder& b, DType dtype, const Value& x) {
  using enum Direction;
  const Value bits = BitsAs(b, x, DType::kU32);
  if (dtype == DType::kF8E8M0FNU) {
    const Value least = Pick(b, Is(b, bits, kEq, 0x400000), 0, Right(b, Add(b, bits, Number(b, bits, 0x400000)), 23));
    const Value none = OrBits(b, Is(b, bits, kEq, 0), Is(b, bits, kGe, kInfinity));
    return Convert(b, Pick(b, none, 0xFF, least), DType::kU8);
  }
  const SmallFloat& f = SmallFloatOf(dtype);
  const int drop = 23 - f.fraction;
  const Value magnitude = AndBits(b, bits, 0x7FFFFFFF);
  const uint32_t holder = static_cast<uint32_t>(128 - f.bias + drop) << 23;
  const Value sum = Add(b, BitsAs(b, magnitude, DType::kF32), BitsAs(b, Number(b, bits, holder), DType::kF32));
  const Value subnormal = Sub(b, BitsAs(b, sum, DType::kU32), Number(b, bits, holder));
  const Value odd = AndBits(b, Right(b, magnitude, drop), 1);
  const Value rounded = Add(b, Add(b, magnitude, Number(b, bits, (1u << (drop - 1)) - 1)), odd);
  const Value normal =
      Sub(b, Right(b, rounded, drop), Number(b, bits, static_cast<uint32_t>(127 - f.bias) << f.fraction));
  Value code = Select(b, Is(b, magnitude, kLt, static_cast<uint32_t>(128 - f.bias) << 23), subnormal, normal);
  code = Pick(b, Is(b, code, kGt, f.most), f.beyond, code);
  if (f.beyond != f.nan) code = Pick(b, Is(b, magnitude, kGt, kInfinity), f.nan, code);
  const Value sign = Left(b, Right(b, bits, 31), 7);
  const Value with_sign = OrBits(b, code, sign);
  return Convert(b, f.one_nan ? Pick(b, Is(b, code, kEq, 0), 0, with_sign) : with_sign, DType::kU8);
}

// The f32 from which a rounding to fewer bits is the rounding of the f64: towards zero, with the low bit set where that is not
// exact.
Value F64ToOdd(Builder& b, const Value& x) {
  using enum Direction;
  const Value near = Convert(b, x, DType::kF32), back = Convert(b, near, DType::kF64);
  const Value bits = BitsAs(b, near, DType::kU32);
  const Value larger = Compare(b, kGt, Abs(b, back), Abs(b, x));
  const Value down = Select(b, larger, Sub(b, bits, Number(b, bits, 1)), bits);
  const Value exact = OrBits(b, Compare(b, kEq, back, x), Compare(b, kNe, x, x));
  return BitsAs(b, Select(b, exact, bits, OrBits(b, down, Number(b, down, 1))), DType::kF32);
}

// Integers above 2^53 as an f64 whose rounding to fewer bits is theirs.
Value IntegerToF64(Builder& b, const Value& x) {
  if (BitsOf(x.dtype()) < 64) return Convert(b, x, DType::kF64);
  const bool has_sign = IsSigned(x.dtype());
  const Value negative = has_sign ? Compare(b, Direction::kLt, x, 0) : Value();
  Value u = has_sign ? BitsAs(b, Select(b, negative, Neg(b, x), x), DType::kU64) : x;
  const Value low = And(b, u, Number(b, u, 0x7FF)), high = Sub(b, u, low);
  const Value sticky = Select(b, Compare(b, Direction::kNe, low, 0), Number(b, u, 0x800), Number(b, u, 0));
  const Value large = Compare(b, Direction::kNe, Right(b, u, 53), 0);
  u = Select(b, large, OrBits(b, high, sticky), u);
  const Value magnitude = Convert(b, u, DType::kF64);
  return has_sign ? Select(b, negative, Neg(b, magnitude), magnitude) : magnitude;
}

// The low bits, with their sign.
Value Wrap(Builder& b, DType dtype, const Value& x) {
  const Value byte = Convert(b, x, StorageOf(dtype));
  if (IsUnsigned(dtype)) return AndBits(b, byte, (1u << BitsOf(dtype)) - 1);
  const int up = 8 - BitsOf(dtype);
  return Call(b, kOp_shift_right_arithmetic, {Left(b, byte, up), Number(b, byte, static_cast<uint32_t>(up))});
}

}  // namespace

Value DecodeNarrow(Builder& b, DType dtype, const Value& stored) {
  return IsFloat(dtype) ? F8ToF32(b, dtype, stored) : Convert(b, stored, ComputeType(dtype));
}

Value BoundedNarrow(Builder& b, DType dtype, const Value& x) {
  return Minimum(b, Maximum(b, x, FullLike(b, x, LeastOf(dtype))), FullLike(b, x, LargestOf(dtype)));
}

Value EncodeNarrow(Builder& b, DType dtype, const Value& x) {
  const DType from = x.dtype();
  if (!IsFloat(dtype)) {
    if (IsBool(from)) return Convert(b, x, StorageOf(dtype));
    if (!IsFloat(from)) return Wrap(b, dtype, x);
    return Convert(b, BoundedNarrow(b, dtype, Convert(b, x, DType::kI32)), StorageOf(dtype));  // NaN is 0
  }
  if (from == DType::kF64) return F32ToF8(b, dtype, F64ToOdd(b, x));
  const bool exact = IsFloat(from) || BitsOf(from) <= 16;  // f16 and bf16, short integers, bool
  if (exact) return F32ToF8(b, dtype, Convert(b, x, DType::kF32));
  return F32ToF8(b, dtype, F64ToOdd(b, IntegerToF64(b, x)));
}

}  // namespace weft::ops
