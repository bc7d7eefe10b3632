// Reductions by any function: loops that carry values through the reduced dimensions.
#pragma once

#include <vector>

#include "src/backends/cpu/lower/lowering.h"

namespace weft::cpu {

// A tensor along the dimensions that stay and those that vanish; a scalar has strides of 0.
struct FoldOperand {
  StorageId storage = -1;
  int64_t offset = 0;
  std::vector<int64_t> kept, reduced;  // strides
};

struct Fold {
  const ir::Function& body;         // n so far, n taken in, captures -> n
  std::vector<StorageId> captures;  // scalars
  Dims kept, reduced;               // sizes
  std::vector<FoldOperand> starts;  // n; nothing along the reduced dimensions
  std::vector<FoldOperand> taken;   // n
  FoldOperand valid;                // bytes: what is 0 is left out; no storage: everything counts
};

// Beginning with the starts, element by element in the order of the reduced dimensions. The results, dense over the kept ones.
absl::StatusOr<std::vector<StorageId>> AddFold(Lowering& lowering, const Fold& fold);

// The same where few results have many elements each: neighbours are combined first, so that there is work for all lanes and
// threads. How depends on the sizes alone.
absl::StatusOr<std::vector<StorageId>> AddReduction(Lowering& lowering, Fold fold);

}  // namespace weft::cpu
