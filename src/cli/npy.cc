// See npy.h.
#include "src/cli/npy.h"

#include <algorithm>
#include <iterator>

namespace weft::cli {
namespace {

struct Kind {
  weft_dtype dtype;
  std::string_view name;
  bool bare = false;
};
constexpr Kind kKinds[] = {{WEFT_BOOL, "bool"},
                           {WEFT_I8, "i8"},
                           {WEFT_I16, "i16"},
                           {WEFT_I32, "i32"},
                           {WEFT_I64, "i64"},
                           {WEFT_U8, "u8"},
                           {WEFT_U16, "u16"},
                           {WEFT_U32, "u32"},
                           {WEFT_U64, "u64"},
                           {WEFT_F16, "f16"},
                           {WEFT_F32, "f32"},
                           {WEFT_F64, "f64"},
                           {WEFT_BF16, "bf16"},
                           {WEFT_C64, "c64"},
                           {WEFT_C128, "c128"},
                           {WEFT_F8E3M4, "f8e3m4", true},
                           {WEFT_F8E4M3, "f8e4m3", true},
                           {WEFT_F8E4M3B11FNUZ, "f8e4m3b11fnuz", true},
                           {WEFT_F8E4M3FN, "f8e4m3fn", true},
                           {WEFT_F8E4M3FNUZ, "f8e4m3fnuz", true},
                           {WEFT_F8E5M2, "f8e5m2", true},
                           {WEFT_F8E5M2FNUZ, "f8e5m2fnuz", true},
                           {WEFT_F8E8M0FNU, "f8e8m0fnu", true},
                           {WEFT_I2, "i2", true},
                           {WEFT_I4, "i4", true},
                           {WEFT_U2, "u2", true},
                           {WEFT_U4, "u4", true}};

const Kind& KindOf(weft_dtype dtype) { return *std::ranges::find(kKinds, dtype, &Kind::dtype); }

}  // namespace

bool HasNpy(weft_dtype dtype) { return std::ranges::find(kKinds, dtype, &Kind::dtype) != std::end(kKinds); }

bool TypeOfName(std::string_view name, weft_dtype* out) {
  const auto found = std::ranges::find(kKinds, name, &Kind::name);
  if (found == std::end(kKinds)) return false;
  return *out = found->dtype, true;
}

bool IsBareByte(weft_dtype dtype) { return KindOf(dtype).bare; }

std::string TypeText(weft_dtype dtype, const int64_t* dims, size_t rank) {
  std::string text(KindOf(dtype).name);
  text += '[';
  for (size_t i = 0; i < rank; ++i) text += (i > 0 ? "," : "") + std::to_string(dims[i]);
  return text + ']';
}

}  // namespace weft::cli
