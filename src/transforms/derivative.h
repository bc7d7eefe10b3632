// grad, vjp and jvp: the derivatives of a function as functions.
#pragma once

#include <cstdint>
#include <span>

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::transforms {

struct DerivativeCall {
  const ir::Function& function;
  size_t inputs = 0;             // of its parameters; behind them stand captures and a stream, which stay the last
  std::span<const int64_t> wrt;  // with respect to these inputs; none: all floats and complex numbers
  bool values = false;           // the function's own results stand in front
};

// inputs -> the slopes of the first result, which has one element: one for each of wrt.
absl::StatusOr<Ref<const ir::Function>> Grad(const DerivativeCall& call);

// (inputs, a cotangent for each float or complex result) -> the cotangents of wrt: vector-Jacobian products.
absl::StatusOr<Ref<const ir::Function>> Vjp(const DerivativeCall& call);

// (inputs, a tangent for each of wrt) -> the tangents of such results: Jacobian-vector products, forward with the
// function itself, so that loops without a known number of runs have one. For an operation it is the transpose of its
// vjp, which is linear in the cotangents: two reverse sweeps, as in J. Townsend, "A new trick for calculating Jacobian
// vector products" (2017).
absl::StatusOr<Ref<const ir::Function>> Jvp(const DerivativeCall& call);

}  // namespace weft::transforms
