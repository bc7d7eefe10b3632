// Short ways to say OpDef::lies.
#pragma once

#include <span>

#include "src/ir/op_def.h"

namespace weft::ops {

// Cuts dimension `to` of the result as dimension `from` of an operand is cut, unless something has cut it already, an axis is taken,
// or the pieces do not come out even.
void LieAs(const ir::LieCall& call, const ir::Sharding& operand, int64_t from, int64_t to, ir::Sharding* result);

// Operations whose result has these dimensions of operand 0, in this order.
ir::Sharding LiesAlong(const ir::LieCall& call, std::span<const int64_t> kept);

// Returns what the operation says, or the rule for those that say nothing (OpDef::lies).
ir::Sharding Lies(const ir::LieCall& call);

}  // namespace weft::ops
