// embedding and embedding_bag share this.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

// A row of a table, where negative ones count from the end.
absl::StatusOr<int64_t> NormalizeEntry(int64_t row, int64_t entries);

}  // namespace weft::ops
