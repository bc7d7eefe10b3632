// The cost of a function on any machine: the arithmetic of its operations, whatever compiles it.
#pragma once

#include "src/ir/function.h"
#include "src/ir/op_def.h"
#include "src/runtime/status.h"

namespace weft::compiler {

// The cost of one run. A multiplication and an addition of a product's sum count one each, as in XLA's cost analysis. A
// loop whose number of runs is unknown counts one run, a branch its most expensive case.
using Cost = ir::Work;

absl::StatusOr<Cost> CostOf(const ir::Function& function);

}  // namespace weft::compiler
