// StableHLO programs that come with shardings, read for the mesh on which they will run.
#pragma once

#include <string_view>

#include "src/c_api/context.h"
#include "src/ir/function.h"

namespace weft::c_api {

// The module's entry is the function. On a mesh (the context's, or that of the body that is recorded) whose axes it has, a program of
// several partitions keeps its shardings: what they say of parameters, results and values becomes weft.shard by the names of axes, manual
// computations become weft.per_device. Elsewhere shardings are dropped. INVALID_ARGUMENT for a program of another number of partitions
// than the mesh has devices.
absl::StatusOr<ir::Module> ReadTextFor(const Context& context, std::string_view text);

}  // namespace weft::c_api
