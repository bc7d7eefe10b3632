// One table of element types; everything about names is read from it.
#include "src/runtime/dtype.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view stablehlo;
  std::string_view common;
  bool computable;
};

constexpr Row kRows[] = {
    {DType::kBool, "bool", "i1", "bool", true},
    {DType::kI2, "i2", "i2", "int2", false},
    {DType::kI4, "i4", "i4", "int4", false},
    {DType::kI8, "i8", "i8", "int8", true},
    {DType::kI16, "i16", "i16", "int16", true},
    {DType::kI32, "i32", "i32", "int32", true},
    {DType::kI64, "i64", "i64", "int64", true},
    {DType::kU2, "u2", "ui2", "uint2", false},
    {DType::kU4, "u4", "ui4", "uint4", false},
    {DType::kU8, "u8", "ui8", "uint8", true},
    {DType::kU16, "u16", "ui16", "uint16", true},
    {DType::kU32, "u32", "ui32", "uint32", true},
    {DType::kU64, "u64", "ui64", "uint64", true},
    {DType::kF16, "f16", "f16", "float16", true},
    {DType::kBF16, "bf16", "bf16", "bfloat16", true},
    {DType::kF32, "f32", "f32", "float32", true},
    {DType::kF64, "f64", "f64", "float64", true},
    {DType::kC64, "c64", "complex<f32>", "complex64", true},
    {DType::kC128, "c128", "complex<f64>", "complex128", true},
    {DType::kF8E3M4, "f8e3m4", "f8E3M4", "float8_e3m4", false},
    {DType::kF8E4M3, "f8e4m3", "f8E4M3", "float8_e4m3", false},
    {DType::kF8E4M3B11FNUZ, "f8e4m3b11fnuz", "f8E4M3B11FNUZ", "float8_e4m3b11fnuz", false},
    {DType::kF8E4M3FN, "f8e4m3fn", "f8E4M3FN", "float8_e4m3fn", false},
    {DType::kF8E4M3FNUZ, "f8e4m3fnuz", "f8E4M3FNUZ", "float8_e4m3fnuz", false},
    {DType::kF8E5M2, "f8e5m2", "f8E5M2", "float8_e5m2", false},
    {DType::kF8E5M2FNUZ, "f8e5m2fnuz", "f8E5M2FNUZ", "float8_e5m2fnuz", false},
    {DType::kF8E8M0FNU, "f8e8m0fnu", "f8E8M0FNU", "float8_e8m0fnu", false},
};

const Row* Find(DType dtype) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.dtype == dtype; });
  return row == std::end(kRows) ? nullptr : row;
}

// Asked several times an operation, so not searched for: by code, the widths there are, which are powers of two.
using Widths = std::array<uint32_t, 16>;
constexpr Widths WidthsOf(bool computable) {
  Widths widths = {};
  for (const Row& row : kRows) {
    if (row.computable || !computable) widths.at(CodeOf(row.dtype)) |= BitsOf(row.dtype);
  }
  return widths;
}
constexpr Widths kComputable = WidthsOf(true), kKnown = WidthsOf(false);

bool IsIn(const Widths& widths, DType dtype) {
  const uint32_t code = CodeOf(dtype), bits = BitsOf(dtype);
  // A single bit is looked for without a population count, which the oldest x86-64 lacks: recording an operation asks seven times.
  return static_cast<uint32_t>(dtype) >> 16 == 1 && code < widths.size() && (bits & (bits - 1)) == 0 &&
         (widths[code] & bits) != 0;
}

}  // namespace

bool IsComputable(DType dtype) { return IsIn(kComputable, dtype); }

std::string_view NameOf(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? "invalid" : row->name;
}

std::string_view StableHloNameOf(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? "invalid" : row->stablehlo;
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name || name == row.stablehlo || name == row.common) return row.dtype;
  }
  return std::nullopt;
}

bool IsKnown(uint32_t dtype) { return IsIn(kKnown, static_cast<DType>(dtype)); }

}  // namespace weft
