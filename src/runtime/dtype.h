// Element types, in DLPack's own numbers (code | bits << 8 | lanes << 16), so that no table of translations exists.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

enum class DType : uint32_t {
  kInvalid = 0,
  kI2 = 0x00010200,
  kI4 = 0x00010400,
  kI8 = 0x00010800,
  kI16 = 0x00011000,
  kI32 = 0x00012000,
  kI64 = 0x00014000,
  kU2 = 0x00010201,
  kU4 = 0x00010401,
  kU8 = 0x00010801,
  kU16 = 0x00011001,
  kU32 = 0x00012001,
  kU64 = 0x00014001,
  kF16 = 0x00011002,
  kF32 = 0x00012002,
  kF64 = 0x00014002,
  kBF16 = 0x00011004,
  kC64 = 0x00014005,
  kC128 = 0x00018005,
  kBool = 0x00010806,
  kF8E3M4 = 0x00010807,
  kF8E4M3 = 0x00010808,
  kF8E4M3B11FNUZ = 0x00010809,
  kF8E4M3FN = 0x0001080A,
  kF8E4M3FNUZ = 0x0001080B,
  kF8E5M2 = 0x0001080C,
  kF8E5M2FNUZ = 0x0001080D,
  kF8E8M0FNU = 0x0001080E,
};

// Bits of one element; 2 or 4 for the sub-byte types, which are packed low bits first.
constexpr int BitsOf(DType dtype) { return (static_cast<uint32_t>(dtype) >> 8) & 0xFF; }
// Bytes of one element in memory; sub-byte types occupy a whole byte unless packed.
constexpr int BytesOf(DType dtype) { return (BitsOf(dtype) + 7) / 8; }

constexpr int CodeOf(DType dtype) { return static_cast<uint32_t>(dtype) & 0xFF; }
constexpr bool IsSigned(DType dtype) { return CodeOf(dtype) == 0; }
constexpr bool IsUnsigned(DType dtype) { return CodeOf(dtype) == 1; }
constexpr bool IsInteger(DType dtype) { return dtype != DType::kInvalid && CodeOf(dtype) <= 1; }
constexpr bool IsFloat(DType dtype) { return CodeOf(dtype) == 2 || CodeOf(dtype) == 4 || CodeOf(dtype) >= 7; }
constexpr bool IsHalf(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
constexpr bool IsComplex(DType dtype) { return CodeOf(dtype) == 5; }
// Returns the type of a complex element's two parts; any other type is its own.
constexpr DType PartOf(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
}
// The complex type of two such parts, f32 or f64.
constexpr DType ComplexOf(DType part) { return part == DType::kF64 ? DType::kC128 : DType::kC64; }
constexpr bool IsBool(DType dtype) { return dtype == DType::kBool; }

// f8 of every kind, i4, u4, i2 and u2: one element a byte in memory (integers with their sign extended), and every operation that
// does more than move them computes in a wider type and rounds once (passes/widen_narrow.cc).
constexpr bool IsNarrow(DType dtype) { return dtype != DType::kInvalid && (BitsOf(dtype) < 8 || CodeOf(dtype) >= 7); }

// The types that programs compute with by themselves (complex ones as two real values: passes/split_complex.cc): all but the
// narrow ones.
bool IsComputable(DType dtype);

// Returns the type in which elements of this type are computed: f32 for f16, bf16 and f8, i32 and u32 for the sub-byte
// integers, else the type itself.
constexpr DType ComputeType(DType dtype) {
  if (IsHalf(dtype) || (IsNarrow(dtype) && IsFloat(dtype))) return DType::kF32;
  return !IsNarrow(dtype) ? dtype : IsSigned(dtype) ? DType::kI32 : DType::kU32;
}
// Tells whether that is another type.
constexpr bool IsWidened(DType dtype) { return ComputeType(dtype) != dtype; }

// Returns the C interface's name (WEFT_U8), in small letters: "f32", "bf16", "i32", "u8", "bool", "f8e4m3fn", "c64".
// Callers read it.
std::string_view NameOf(DType dtype);
// StableHLO's spelling: "ui8", "i1", "f8E4M3FN", "complex<f32>". The texts of the IR use it.
std::string_view StableHloNameOf(DType dtype);
// Accepts both spellings and the common ones of NumPy and PyTorch ("float32", "bfloat16", "uint8").
std::optional<DType> ParseDType(std::string_view name);
// Tells whether the number is one of the enumerators above (callers hand in any uint32_t).
bool IsKnown(uint32_t dtype);

}  // namespace weft
