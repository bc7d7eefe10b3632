// Short ways to say OpDef::simpler, and what several of these rules look at.
#pragma once

#include <optional>

#include "src/ops/build.h"
#include "src/ops/literals.h"

namespace weft::ops {

// Operations that only move elements: f16 and bf16 move as they are and widen behind it, where products and kernels read them.
ir::Value MoveNarrow(const ir::SimplerCall& call);
// f(x, x) is x.
ir::Value Idempotent(const ir::SimplerCall& call);
// f(f(x)) is x.
ir::Value Involution(const ir::SimplerCall& call);

// Where a box of these sizes begins whose starts are literals, moved inside; nothing where they are not.
std::optional<ir::Ints> LiteralStarts(std::span<const ir::Value> starts, const Dims& whole, const Dims& box);

}  // namespace weft::ops
