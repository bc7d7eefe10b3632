// StableHLO text as HLO text, which XLA's parser reads: for who looks at graphs in the form that XLA's own tools print.
#pragma once

#include <string>
#include <string_view>

#include "src/ir/type.h"
#include "src/runtime/status.h"

namespace weft::stablehlo {

// "f32[32,32]{1,0}": a dense row-major tensor as HLO writes it; "token[]" for what is none.
std::string HloShape(const ir::Type& type);

// A module in the generic form that ir::ToStableHlo writes, as one HLO module: each function, region and body is a computation that
// stands before who calls it, the entry's root is a tuple, and what a loop or a branch uses of the values around it is carried along.
// A location becomes metadata={op_type op_name source_file source_line}. Literals of more than 1,024 elements are left out, as XLA
// leaves them out: constant({...}). UNIMPLEMENTED names an operation that has no spelling here: those of dynamic shapes and of
// several devices.
absl::StatusOr<std::string> HloText(std::string_view stablehlo);

}  // namespace weft::stablehlo
