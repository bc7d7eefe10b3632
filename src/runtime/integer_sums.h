// Which products of integers are summed in a wider type without converting the factors before.
#pragma once

#include "src/runtime/dtype.h"

namespace weft {

// Tells whether every backend sums products of this type in i32.
constexpr bool SumsInI32(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI16; }

}  // namespace weft
