// Which values gradients flow through.
#pragma once

#include "src/ir/type.h"

namespace weft::ir {

constexpr bool CarriesGradient(DType dtype) { return IsFloat(dtype) || IsComplex(dtype); }
inline bool CarriesGradient(const Type& type) { return type.is_tensor() && CarriesGradient(type.dtype); }

}  // namespace weft::ir
