// Products that a loop makes a few rows at a time, of what is known before it. For backends that run loops as they stand; plugins
// get the program as it was written.
#pragma once

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::passes {

struct HoistOptions {
  // Rows that a run multiplies: with fewer the backend adds in another order, so that bits would differ; more fill it by themselves.
  int64_t fewest_rows = 9, most_rows = 256;
  // What all products of one stack may take: so many times what the stack does, or so many bytes.
  int64_t most_times = 4, most_bytes = int64_t{16} << 20;
};

// A loop that runs a known number of times (a scan), reads another row of a stack in each run and multiplies it by a matrix that
// all runs have in common: one product of the whole stack before the loop, of whose result each run reads its row. In between, rows
// may be converted and reshaped, the matrix may be anything that moves or converts what the loop captures. Every element of a product is the sum
// that it was, so a backend whose sums do not depend on the number of rows gives the same bits. Inner loops first, so that what
// leaves one may leave the next.
absl::StatusOr<Ref<const ir::Function>> HoistProducts(const ir::Function& function, const HoistOptions& options = {});

}  // namespace weft::passes
