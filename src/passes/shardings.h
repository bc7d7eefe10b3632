// How the results of a program lie on its mesh.
#pragma once

#include <vector>

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::passes {

// Returns a sharding for each result of the entry function, of which nothing is open. A sharding that
// module.participants gives a result stands; a result whose dimensions it leaves open lies as the values that it is
// computed from, so that a partitioner need move nothing for it, and is whole where no rule knows better.
// INVALID_ARGUMENT where a shard of the module does not fit the mesh. Results of which that is so, though they are
// computed from something that is cut, go behind `unknown` by their numbers, if it is not null, each with the node that
// no rule speaks of: they are put together on each device for nobody's sake.
struct UnknownResult {
  size_t result = 0;
  std::string_view operation;
  ir::Location location;
};
// Where `leave_open`, somebody else says later how those lie, and they stay open.
absl::StatusOr<std::vector<ir::Sharding>> ResultShardings(const ir::Module& module,
                                                          std::vector<UnknownResult>* unknown = nullptr,
                                                          bool leave_open = false);

// Tells whether the partitioner may cut it further.
bool IsOpen(const ir::Sharding& sharding);

// Says of what the module draws at random how it lies: as what it is combined with. A partitioner that is not told has each device draw
// all of it. For modules of primitives, and of more than one process.
absl::StatusOr<ir::Module> PlaceDrawn(const ir::Module& module);

}  // namespace weft::passes
