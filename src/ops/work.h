// Short ways to say OpDef::work.
#pragma once

#include "src/ir/op_def.h"

namespace weft::ops {

// Elements of a tensor.
double ElementsOf(const ir::Type& type);

// The operation runs each of its functions once, or nobody knows how often.
absl::StatusOr<ir::Work> WorkOfAll(const ir::WorkCall& call);
// The operation runs one of its functions: the most expensive one counts.
absl::StatusOr<ir::Work> WorkOfDearest(const ir::WorkCall& call);

// The operation runs its last function `times` times; without one it computes on scalars as often.
ir::Work WorkOfTimes(const ir::WorkCall& call, double times);
// The work is counted by vanishing elements; by updates, the last operand; or by elements of operand 0.
absl::StatusOr<ir::Work> WorkOfReduction(const ir::WorkCall& call);
absl::StatusOr<ir::Work> WorkOfUpdates(const ir::WorkCall& call);
absl::StatusOr<ir::Work> WorkOfElements(const ir::WorkCall& call);
// The operation looks at a window of these sizes for each result.
ir::Work WorkOfWindows(const ir::WorkCall& call, std::span<const int64_t> sizes);

}  // namespace weft::ops
