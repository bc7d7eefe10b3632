// The dimension numbers of gather and scatter as strides.
#pragma once

#include "src/backends/cpu/launch/box_call.h"
#include "src/ir/function.h"

namespace weft::cpu {

// `boxes` is the shape of the gather's result or of the scatter's updates.
BoxCall IndexedBoxes(const Dims& operand, const ir::Value& indices, const Dims& boxes, const ir::Ints& window,
                     const ir::Ints& collapsed, const ir::Ints& index_map, int64_t index_vector,
                     const ir::Ints& operand_batching, const ir::Ints& index_batching);

}  // namespace weft::cpu
