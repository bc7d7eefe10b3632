// Looking at literals that rules made. Values of parameters are run-time values: no pass ever asks for them.
#pragma once

#include <optional>

#include "src/ir/node.h"

namespace weft::ops {

// The element all of whose copies make up the value (a constant of equal elements, or a broadcast, reshape … of one), as
// a tensor of shape []; null otherwise.
Ref<const Literal> UniformLiteral(const ir::Value& value);

// Tells whether the value is this number everywhere: -0.0 is not 0.0.
bool IsUniform(const ir::Value& value, double number);

}  // namespace weft::ops
