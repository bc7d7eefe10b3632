// Facts that the operation table shows by what it does, not by a field: the element types of results, and through which
// operands a gradient flows. Found by recording the samples of each operation in every type that they allow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/ir/op_def.h"

namespace weft {

// The element type of a result, as a rule that every recorded sample follows. A text of JSON:
//   {"as": "x"}                                that of operand x
//   {"part_of": "x"}                           the same, of complex numbers the type of their parts
//   {"is": "bool"}                             always the same
//   {"attribute": "dtype", "else": {…}}        what the attribute says, else another rule
//   {"of": "x", "by": {"bool": "i64", …}}      by the type of operand x
// "null" where none of these holds.
std::vector<std::string> ResultTypeRules(const ir::OpDef& op);

// For each operand that a caller gives: whether a gradient flows through it in some sample.
std::vector<bool> GradientFlows(const ir::OpDef& op);

}  // namespace weft
