// Functions that draw random numbers have a stream of the generator as their last parameter, a state of its own for each call. A
// loop has one for all its runs: these bodies draw from the stream of the number of the run.
#pragma once

#include "src/ir/op_def.h"

namespace weft::ops {

// Tells whether the operation itself draws random numbers; or whether one in the function, or in any function that it
// carries, does.
bool Draws(const ir::Node& node);
bool Draws(const ir::Function& function);

// Makes the condition or body of a while with the number of the run, a u64 scalar, behind the `carried` parameters. A
// function that draws does so from this number's stream; the body (`carries`) gives the next number behind its results.
absl::StatusOr<Ref<const ir::Function>> NumberedRun(const ir::Function& function, size_t carried, bool draws,
                                                    bool carries);

// Makes a scan's body that draws: from the stream of the index, its first parameter, which is added unless it is there
// (`indexed`).
absl::StatusOr<Ref<const ir::Function>> IndexedRun(const ir::Function& body, bool indexed);

}  // namespace weft::ops
