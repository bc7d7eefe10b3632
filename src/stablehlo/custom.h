// Custom calls whose target is a registered function: what the registration knows and the text does not.
#pragma once

#include "src/ops/custom/functions.h"
#include "src/stablehlo/parser.h"
#include "src/stablehlo/read.h"

namespace weft::stablehlo {

// Null where it is no custom call, or its target is not registered.
Ref<const ops::CustomFunction> CustomOf(const Operation& op, const ReadOptions& options);

// The operation's attributes; of a registered function first what it says of itself, which the text cannot say otherwise then.
ir::ShloAttr::Fields AttributesOf(const Operation& op, const ReadOptions& options);

// Checks the call of a registered function, and gives it its gradient as the region that no text has.
absl::Status AddCustom(const ops::CustomFunction& custom, ir::StableHloOp& call);

}  // namespace weft::stablehlo
