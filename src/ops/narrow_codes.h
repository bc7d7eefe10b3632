// The narrow types (f8, i4, u4, i2, u2) as formulas of wider ones: what passes make of programs that have them, by integer
// arithmetic that fusion puts into the loops around it. runtime/narrow.h has the same for one element.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

// The numbers that bytes (StorageOf(dtype)) hold, in ComputeType(dtype).
ir::Value DecodeNarrow(ir::Builder& b, DType dtype, const ir::Value& stored);
// The bytes that hold x, of any type but complex, rounded or wrapped once.
ir::Value EncodeNarrow(ir::Builder& b, DType dtype, const ir::Value& x);
// x, or the nearest end of the range of an integer type where it is outside.
ir::Value BoundedNarrow(ir::Builder& b, DType dtype, const ir::Value& x);
// The same bits as another type.
ir::Value BitsAs(ir::Builder& b, const ir::Value& x, DType dtype);

}  // namespace weft::ops
