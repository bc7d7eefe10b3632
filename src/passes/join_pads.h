// Sums of what slices of a tensor contribute to its gradient, each padded with zeros to the whole.
#pragma once

#include "src/ir/builder.h"

namespace weft::passes {

// Of an add of two values that are zeros along one dimension but for parts that do not overlap: the concatenation of the parts
// and of the zeros between them, padded by what is left. Parts that take turns, every k-th slice each, are joined within the
// dimension where they do. Empty for any other. Keeps every bit: a zero that is added makes -0.0 a 0.0, so it stays on each part.
ir::Value JoinPads(ir::Builder& b, const ir::Value& x, const ir::Value& y);

}  // namespace weft::passes
