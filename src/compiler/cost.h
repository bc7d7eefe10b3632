// What a function asks of any machine: the arithmetic of its operations, whatever compiles it.
#pragma once

#include "src/ir/function.h"
#include "src/ir/op_def.h"
#include "src/runtime/status.h"

namespace weft::compiler {

// Of one run. A multiplication and an addition of a product's sum count one each, as in XLA's cost analysis; loops of which
// nobody knows how often they run count one run, branches the dearest one.
using Cost = ir::Work;

absl::StatusOr<Cost> CostOf(const ir::Function& function);

}  // namespace weft::compiler
