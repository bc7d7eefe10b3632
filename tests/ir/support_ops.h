// Operations that only these tests know: every attribute type, several results, regions.
#pragma once

#include "src/ir/op_def.h"

namespace weft::ir {

extern const OpDef kEverything;

// ops::FindOp, and test.everything.
const OpDef* FindTestOp(std::string_view name);

}  // namespace weft::ir
