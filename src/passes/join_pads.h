// Sums of what slices of a tensor contribute to its gradient, each padded with zeros to the whole.
#pragma once

#include "src/ir/builder.h"

namespace weft::passes {

// Of an add of two values that are padded with zeros along one dimension and lie side by side: their concatenation, padded by
// what is left. Empty for any other. Keeps every bit: a zero that is added makes -0.0 a 0.0, so it stays on each part.
ir::Value JoinPads(ir::Builder& b, const ir::Value& x, const ir::Value& y);

}  // namespace weft::passes
