// How a user's call becomes nodes: broadcasting, expansion of macros, then the checked node. Recording,
// gradients and expansions all come through here.
#pragma once

#include "src/ir/builder.h"
#include "src/ops/registry.h"

namespace weft::ops {

// All results; empty values after a failure (ask b.status()). Follows op.rule; macros expand.
ir::Values CallAll(ir::Builder& b, const ir::OpDef& op, ir::Values operands, ir::Attrs attrs = {},
                   ir::RegionSpan regions = {});
// The first result.
ir::Value Call(ir::Builder& b, const ir::OpDef& op, ir::Values operands, ir::Attrs attrs = {},
               ir::RegionSpan regions = {});

// Tells whether the rules of `op` see f32 in place of f16 and bf16 on these operands (OpDef::rounds_once says when
// not).
bool ComputesWide(const ir::OpDef& op, std::span<const ir::Value> operands);
// f16 and bf16 as f32; anything else, and nothing, as it is.
ir::Value Widened(ir::Builder& b, const ir::Value& x);
ir::Values Widened(ir::Builder& b, std::span<const ir::Value> values);

// Tells whether the node is such a convert, which is free where an element is read.
bool IsWidening(const ir::Node& node);

// The expansion of a composite or macro, its results rounded to `types`. Whoever expands comes through here, so that every
// backend, the reference and the gradient compute the same thing.
absl::Status Expand(ir::Builder& b, const ir::OpDef& op, ir::Values operands, const ir::Attrs& attrs,
                    std::span<const ir::Type> types, std::span<ir::Value> results, ir::RegionSpan regions = {});

// NumPy's broadcast of two shapes; a UserError naming the first dimension that does not fit.
absl::StatusOr<Dims> BroadcastDims(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace weft::ops
