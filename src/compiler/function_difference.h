// How two functions differ, told as the compiler tells why it compiles again.
#pragma once

#include <optional>
#include <string>

#include "src/compiler/reasons.h"
#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::compiler {

struct FunctionDifference {
  Reason reason = Reason::kFirst;  // kFirst: less than half is equal
  std::string text;
  ir::Location at;
};
// The cause of the first difference; nothing where both are the same program. Calls are compared written out. UNIMPLEMENTED
// where that would be too many operations.
absl::StatusOr<std::optional<FunctionDifference>> DifferenceOf(const Ref<const ir::Function>& before,
                                                               const Ref<const ir::Function>& now);

}  // namespace weft::compiler
