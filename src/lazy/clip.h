// Gradients times one factor, so that all of them together are no longer than a bound.
#pragma once

#include <span>
#include <vector>

#include "src/lazy/engine.h"
#include "src/lazy/state_parts.h"

namespace weft::lazy {

// The type of a norm of tensors of these types: f32, or f64 where one is f64 or c128.
DType NormType(std::span<const DType> dtypes);

// The norm of all gradients that are not null, and these times min(1, max_norm / (norm + 1e-6)).
absl::StatusOr<std::vector<Ref<Tensor>>> ClipByGlobalNorm(Engine& engine, const Where& where,
                                                          std::span<Tensor* const> grads, double max_norm,
                                                          ir::Location location);

// The same of gradients of which each process has its part, in a step's rule. Returns the norm, the same in all processes.
ir::Value ClipParts(ir::Builder& b, const StateParts& parts, const ir::Value& max_norm, std::span<ir::Value> grads);

}  // namespace weft::lazy
