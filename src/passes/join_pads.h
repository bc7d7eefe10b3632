// Sums of what slices of a tensor contribute to its gradient, each padded with zeros to the whole.
#pragma once

#include "src/ir/builder.h"

namespace weft::passes {

// Joins an add of two values that are zeros along one dimension except for parts that do not overlap: into the
// concatenation of the parts and of the zeros between them, padded by the rest. Parts that alternate, every k-th slice
// each, are joined within the dimension where they do. Empty for any other. Keeps every bit: an added zero makes -0.0 a
// 0.0, so it stays on each part.
ir::Value JoinPads(ir::Builder& b, const ir::Value& x, const ir::Value& y);

}  // namespace weft::passes
