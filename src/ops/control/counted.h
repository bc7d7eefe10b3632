// Loops that end by themselves: weft_cancel leaves them alone.
#pragma once

#include "src/ir/function.h"

namespace weft::ops {

// Of a while: it goes on as long as one of the integers it carries is below a bound that all runs have in common, and the body
// adds 1 to it, or so little more that it cannot overflow. So are all scans and the loops of run-time counts; as they are recorded, or fused.
bool EndsByItself(const ir::Function& condition, const ir::Function& body);

}  // namespace weft::ops
