// Functions of which reverse mode does something else than usual.
#pragma once

#include "src/ir/function.h"
#include "src/ops/control/recompute.h"
#include "src/runtime/status.h"

namespace weft::transforms {

// The same results; its gradient keeps little and computes the rest again (JAX's checkpoint).
absl::StatusOr<Ref<const ir::Function>> Checkpoint(const ir::Function& function, ops::Keep keep);

// A function as it stands in CustomGradient: inputs first, then what it captures, then its stream if it draws.
struct Rule {
  const ir::Function& function;
  size_t inputs = 0;
  bool draws = false;

  size_t captures() const { return function.parameters().size() - inputs - (draws ? 1 : 0); }
};

// The function's results. Reverse mode calls `forward` instead, which gives the same results and residuals, and then `backward` on the
// residuals and cotangents of the float results, which gives the cotangents of the float inputs (JAX's custom_vjp). Parameters: the
// inputs, captures of the three in their order, and a stream if one of the first two draws: both draw the same.
absl::StatusOr<Ref<const ir::Function>> CustomGradient(const Rule& function, const Rule& forward, const Rule& backward);

}  // namespace weft::transforms
