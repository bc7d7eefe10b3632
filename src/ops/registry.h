// The table of all operations, made from ops.list, and lookup by either name.
#pragma once

#include <span>
#include <string_view>

#include "src/ir/op_def.h"

namespace weft::ops {

// Every operation file defines `constinit const ir::OpDef kOp_<c_name>`.
#define WEFT_OP(name) extern const ir::OpDef kOp_##name;
#include "src/ops/ops.list"
#undef WEFT_OP

// In the order of ops.list.
std::span<const ir::OpDef* const> AllOps();

// Finds an operation by StableHLO's name or the C name; null if unknown. Constant time, any thread.
const ir::OpDef* FindOp(std::string_view name);
// The same where what users call it counts first.
const ir::OpDef* FindCalled(std::string_view name);

}  // namespace weft::ops
