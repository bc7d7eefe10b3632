// The object behind weft_optimizer.
#pragma once

#include "src/c_api/context.h"
#include "src/lazy/optimizer.h"

namespace weft::c_api {

template <>
struct HandleTraits<weft_optimizer> {
  using Object = lazy::Optimizer;
  static constexpr HandleType kType = HandleType::kOptimizer;
  static const ForkGuard* ForkOf(const lazy::Optimizer& object) {
    return &object.parameters()[0]->engine().services().fork();
  }
};

inline absl::Status SameEngine(const lazy::Tensor* tensor, const lazy::Engine& engine, std::string_view what,
                               size_t i) {
  if (&tensor->engine() == &engine) return absl::OkStatus();
  return UserError(what, "[", i, "] belongs to another context");
}

inline absl::Status Taken() {
  return UserErrorOf(
      absl::StatusCode::kFailedPrecondition,
      "optimizer is in use by another call, of another thread or further up in this one; it takes one at a "
      "time");
}

}  // namespace weft::c_api
