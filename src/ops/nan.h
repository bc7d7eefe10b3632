// NaN in rules: comparisons are false of it.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

inline ir::Value Either(ir::Builder& b, ir::Value x, ir::Value y) {
  return Call(b, kOp_bitwise_or, {std::move(x), std::move(y)});
}
// False of integers.
inline ir::Value IsNan(ir::Builder& b, const ir::Value& x) { return Compare(b, Direction::kNe, x, x); }

}  // namespace weft::ops
