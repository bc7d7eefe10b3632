// How a user's call becomes nodes: broadcasting, expansion of macros, then the checked node. Recording,
// gradients and expansions all come through here.
#pragma once

#include "src/ir/builder.h"
#include "src/ops/registry.h"

namespace weft::ops {

// All results; empty values after a failure (ask b.status()). Follows op.rule; macros expand.
ir::Values CallAll(ir::Builder& b, const ir::OpDef& op, ir::Values operands, ir::Attrs attrs = {});
// The first result.
ir::Value Call(ir::Builder& b, const ir::OpDef& op, ir::Values operands, ir::Attrs attrs = {});

// NumPy's broadcast of two shapes; a UserError naming the first dimension that does not fit.
absl::StatusOr<Dims> BroadcastDims(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace weft::ops
