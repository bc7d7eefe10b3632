// Functions that are computed in f64 whatever the type is, so that f32 and the narrower types are rounded once.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

template <ir::Value (*f)(ir::Builder&, const ir::Value& x)>
ir::Value InDouble(ir::Builder& b, const ir::Value& x) {
  const ir::Value y = x ? f(b, Convert(b, x, DType::kF64)) : x;
  return y ? Convert(b, y, x.dtype()) : y;
}
template <ir::Value (*f)(ir::Builder&, const ir::Value& x, const ir::Value& y)>
ir::Value InDouble(ir::Builder& b, const ir::Value& x, const ir::Value& y) {
  const ir::Value z = x && y ? f(b, Convert(b, x, DType::kF64), Convert(b, y, DType::kF64)) : x;
  return z ? Convert(b, z, x.dtype()) : z;
}

}  // namespace weft::ops
