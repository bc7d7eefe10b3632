// The launch list of a compiled program as a table for people: the format PLAN of weft_program_text.
#pragma once

#include <string>

#include "src/compiler/program_cache.h"
#include "src/runtime/status.h"

namespace weft::compiler {

// The launch list, an entry a line with its implementation, tasks, flops, bytes, operations and positions, and what each
// reads and writes with the entries between which that memory is in use. UNIMPLEMENTED where the backend does not know what
// its device runs.
absl::StatusOr<std::string> PlanText(const Program& program, std::string_view device);

}  // namespace weft::compiler
