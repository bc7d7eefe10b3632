// Turns the body of a fusion into one loop kernel.
#pragma once

#include "src/backends/cpu/loop/loop.h"
#include "src/ir/function.h"

namespace weft::cpu {

// Buffers of the kernel: the region's parameters, then its results. Results of the shape of the kept dimensions become row
// stores. UNIMPLEMENTED, with the node, for a region that one kernel cannot do; its nodes then run one by one.
absl::StatusOr<LoopKernel> LowerRegion(const ir::Function& region);

// The results of a function of scalars, as it stands after the passes. UNIMPLEMENTED, with the operation, for what is no code
// on scalars.
absl::StatusOr<std::vector<ir::ScalarValue>> EvalBody(LoopBuilder& builder, const ir::Function& body,
                                                      std::span<const ir::ScalarValue> arguments);

// Tells whether LowerRegion takes a region of this one node.
bool IsLoopNode(const ir::Node& node);
// Tells whether LowerRegion takes a node as a result of a region over the elements of one of its parts
// (passes::FuseOptions).
bool JoinsParts(const ir::Node& node);

}  // namespace weft::cpu
