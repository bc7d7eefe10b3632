// Turns a trace into a module that passes and backends can have: fresh nodes, parameters in place of everything that
// already has a value. Only on a miss of the program cache.
#pragma once

#include "src/compiler/trace.h"
#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::compiler {

ir::Module BuildModule(const Trace& trace);
// A function as if it had been recorded and cut; it has to outlive the trace.
Trace TraceOf(const ir::Function& function);

// The module for other compilers, composites expanded but for those that StableHLO has a name for; and its text.
absl::StatusOr<ir::Module> StableHloModule(const ir::Module& module);
absl::StatusOr<std::string> StableHloText(const ir::Module& module, std::string_view precision = "HIGHEST",
                                          bool locations = false);

}  // namespace weft::compiler
