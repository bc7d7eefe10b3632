// The element type that operands of two types are computed in: PyTorch's table (torch.promote_types), docs/element_types.md. Composites
// convert by it; primitives take operands of one type.
#pragma once

#include <optional>

#include "src/ir/builder.h"
#include "src/ir/op_def.h"

namespace weft::ops {

// None where PyTorch refuses: narrow types promote to nothing, nor do u16, u32 and u64 with integers, bool and complex numbers.
std::optional<DType> Promoted(DType a, DType b);

// The kind of a number without a type of its own. It changes a tensor's type only if that is of a lower kind.
enum class NumberKind : uint8_t { kTruth, kInt, kFloat, kComplex };
std::optional<DType> PromotedWithNumber(DType tensor, NumberKind number);

// Converts operands of one group to their common type, where the operation is no primitive. What has none stays as it is, and is
// refused by the check of the call.
void PromoteOperands(ir::Builder& b, const ir::OpDef& op, ir::Values& operands);

}  // namespace weft::ops
