// Groups elementwise operations, shape operations and reductions into `fusion` nodes, one kernel each. A backend that
// compiles loops itself runs it last; others never see a fusion.
#pragma once

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::passes {

struct FuseOptions {
  // Tells which operations a kernel may contain, besides reshapes that only add or drop dimensions of size 1.
  bool (*can_fuse)(const ir::Node& node) = nullptr;
  // Products that do what follows them alone where their sums are in registers, if there is some: none.
  bool (*ends_sums)(const ir::Node& node) = nullptr;
  // Tells which operations have several equal parts that a kernel over the elements of one part may write where they
  // go. Null: none.
  bool (*joins_parts)(const ir::Node& node) = nullptr;
  int max_operations = 150;  // compile time grows with the kernel: about 4 ms here
  // Where the kernel would otherwise read back from memory what is larger than that, and nobody else wants it: drawing
  // normal numbers has 300 operations, and half of them left up to eleven times the numbers' bytes to the other half.
  int max_operations_in_place_of_memory = 500;
  int64_t much_memory = int64_t{1} << 20;
  int64_t max_row = 32768;  // longest reduction whose row several passes may walk
};

// Every node that can_fuse accepts ends up in some fusion, alone if need be, so that a backend sees fusions, reshapes,
// literals and its own kernels only. The same within the functions that other nodes carry, each once. Linear but for a
// bounded search for cycles.
absl::StatusOr<Ref<const ir::Function>> Fuse(const ir::Function& function, const FuseOptions& options);

}  // namespace weft::passes
