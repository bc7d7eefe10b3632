// Parameters of functions that rules and transforms make, and which values derivatives flow through.
#pragma once

#include <span>
#include <vector>

#include "src/ir/differentiable.h"
#include "src/ops/build.h"

namespace weft::ops {

inline ir::Value Parameter(const ir::Type& type) { return {ir::Node::Create(kOp_parameter, {}, {}, {type}), 0}; }

inline std::vector<ir::Value> ParametersLike(std::span<const ir::Value> values) {
  std::vector<ir::Value> parameters;
  for (const ir::Value& value : values) parameters.push_back(Parameter(value.type()));
  return parameters;
}

inline bool Flows(const ir::Type& type) { return ir::CarriesGradient(type); }
inline bool Flows(const ir::Value& value) { return Flows(value.type()); }

}  // namespace weft::ops
