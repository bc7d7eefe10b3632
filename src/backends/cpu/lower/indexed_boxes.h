// The dimension numbers of gather and scatter as strides.
#pragma once

#include "src/backends/cpu/launch/box_call.h"
#include "src/ir/function.h"

namespace weft::cpu {

// The dimension numbers, in the words of the gather; the scatter has others for the same.
struct IndexedDims {
  const ir::Ints &window, &collapsed, &index_map;
  int64_t index_vector;
  const ir::Ints &operand_batching, &index_batching;
};
// `boxes` is the shape of the gather's result or of the scatter's updates.
BoxCall IndexedBoxes(const Dims& operand, const ir::Value& indices, const Dims& boxes, const IndexedDims& dims);

}  // namespace weft::cpu
