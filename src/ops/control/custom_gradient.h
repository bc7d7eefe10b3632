// A function with a gradient of its own: what belongs to what.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// The function, forward and backward, each with the values that it captures behind its inputs. Forward takes the function's inputs and gives its
// results and, behind them, residuals; backward takes the residuals and one cotangent for each float result, and gives one for
// each float input.
struct CustomParts {
  const ir::Function &function, &forward, &backward;
  size_t inputs;     // of the function and of forward
  size_t residuals;  // backward's first inputs

  size_t own(const ir::Function& of) const { return of.parameters().size() - inputs; }
  size_t backward_inputs() const;
};

// The parts where they fit each other; else what is wrong. `taken`: inputs of forward and of backward, where the caller knows them.
struct TakenInputs {
  size_t forward, backward;
};
absl::StatusOr<CustomParts> CustomPartsOf(ir::RegionSpan regions, size_t inputs, const TakenInputs* taken = nullptr);

// Of such a node: what forward is called with where its gradient is taken.
absl::StatusOr<ir::Values> ForwardOperands(const ir::Node& node);

}  // namespace weft::ops
