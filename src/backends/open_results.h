// A backend whose compiler decides how results lie that a module leaves open is this, too, and so is each of its executables.
// Beside Backend and Executable, because others put such results together on each device.
#pragma once

#include <vector>

#include "src/ir/mesh.h"

namespace weft {

class OpenResults {
 public:
  virtual ~OpenResults() = default;
  // Tells whether modules may leave results open: whether there is somebody to say afterwards how they lie.
  virtual bool TakesOpenResults() const = 0;
};

class LyingResults {
 public:
  virtual ~LyingResults() = default;
  // How each result lies, nothing of it open. Empty: as the module said, which left nothing open.
  virtual const std::vector<ir::Sharding>& result_shardings() const = 0;
};

}  // namespace weft
