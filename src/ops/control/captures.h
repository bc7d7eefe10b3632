// Control flow carries functions that see nothing but their parameters. What a function uses from around it follows its
// inputs as captures, function after function: operands of the operation like all others.
#pragma once

#include "src/ir/op_def.h"
#include "src/ops/families.h"

namespace weft::ops {

// Control flow lacks these parts of a definition. Where it is expanded it lacks its reference, too.
inline constexpr ir::Absent kCarriesFunctions[] = {{ir::Part::kSamples, ir::Reason::kCarriesFunctions},
                                                   {ir::Part::kExample, ir::Reason::kCarriesFunctions}};
inline constexpr ir::Absent kExpandsToOthers[] = {{ir::Part::kSamples, ir::Reason::kCarriesFunctions},
                                                  {ir::Part::kExample, ir::Reason::kCarriesFunctions},
                                                  {ir::Part::kReference, ir::Reason::kExpands}};

// "parameter 2 of the function @f is f32[3]; the operand is i32[3]": types of the parameters from `first` on must be those of
// the operands.
absl::Status CheckParameters(const ir::Function& function, size_t first, std::span<const ir::Type* const> operands);

// Checks that the initial value of a carried value has the type that the body gives for the next one.
absl::Status CheckCarried(const ir::Function& body, size_t i, const ir::Type& first);

}  // namespace weft::ops
