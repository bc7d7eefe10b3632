// StableHLO text into the IR: the generic and the pretty form, as JAX prints them. Text becomes a tree (parser.h), the tree
// becomes nodes: each operation by its own reading (OpDef::read), by the schema's names, or by a rewriting (rules.h).
//
// Functions of the module are read once and called (weft.call); what a region uses of the values around it becomes parameters
// and operands, as control flow has it (ops/control/captures.h). A tuple is its elements, a token nothing. Attributes that mean
// nothing here are kept as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/ir/function.h"
#include "src/ops/custom/functions.h"
#include "src/runtime/status.h"

namespace weft::stablehlo {

struct ReadOptions {
  std::string_view entry = "main";
  // The functions that custom calls may name beside the targets that the reader knows; may be null. Asking for a
  // gradient may call the caller's code: no lock is held while text is read.
  const ops::CustomFunctions* custom = nullptr;
  // The program will run in one process, whatever the text says of replicas and partitions: collectives of others are
  // refused and shardings are dropped. False: in as many as the text says, and on the mesh that it says: values are cut by weft.shard and
  // manual computations are weft.per_device.
  bool alone = true;
};

// The module's one function is the entry; the others are what its calls carry. Errors begin with "line 3, column 14: ".
// UNIMPLEMENTED names every operation and element type of the text that Weft lacks, all at once. Whatever the text, what is
// allocated is in proportion to its length.
absl::StatusOr<ir::Module> ReadStableHlo(std::string_view text, const ReadOptions& options = {});

// Every operation that is read, sorted: "stablehlo.add", "chlo.erf", "stablehlo.custom_call @ApproxTopK".
std::vector<std::string> ReadableOperations();

}  // namespace weft::stablehlo
