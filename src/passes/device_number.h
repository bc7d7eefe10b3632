// The number of a device in a function that each device runs.
#pragma once

#include "src/ir/builder.h"
#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::passes {

// The body of a weft.per_device with one more parameter, behind the others: the number of its process, an u32 scalar. Loops, branches and
// calls of the body pass it on to what they carry. Null where nothing asks for it. UNIMPLEMENTED where what asks is carried by another
// operation, by name.
absl::StatusOr<Ref<const ir::Function>> NumberedBody(const ir::Function& body, int64_t processes);

// The results of the node at these operands, where each device has a process of its own: the number is an operand, an iota of which each
// process has its element, because plugins refuse partition_id. Empty where nothing asks for it, and the node may stay as it is.
absl::StatusOr<ir::Values> WithDeviceNumber(ir::Builder& b, const ir::Node& node, const ir::Values& operands,
                                            const ir::Function& body);

}  // namespace weft::passes
