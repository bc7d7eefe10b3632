// Many operations recorded as one: an optimizer's step. The rule outlives the call, because a step that arrives as before is not
// built unless it must be (lazy/replay.h).
#pragma once

#include <span>

#include "src/ir/builder.h"

namespace weft::lazy {

// Values of operands in, new values of targets out. Scalars come as run-time arguments of the computing type: f64 for f64
// targets, else f32.
struct UpdateCall {
  ir::Builder& b;
  std::span<const ir::Value> operands;
  std::span<const ir::Value> scalars_f32;  // one per scalar
  std::span<const ir::Value> scalars_f64;  // none where nothing is f64
  std::span<ir::Value> targets;
};

// Immutable: what it builds depends on the types in the call and on nothing else.
class UpdateRule : public RefCounted {
 public:
  virtual absl::Status Build(const UpdateCall& call) const = 0;
};

}  // namespace weft::lazy
