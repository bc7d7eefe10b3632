// Functions that draw random numbers have a stream of the generator as their last parameter, a state of its own for each call. A
// loop has one for all its runs: these bodies draw from the stream of the number of the run.
#pragma once

#include "src/ir/op_def.h"

namespace weft::ops {

// Whether the operation by itself draws random numbers; whether one in the function or in any that it carries does.
bool Draws(const ir::Node& node);
bool Draws(const ir::Function& function);

// Of a while, the condition or the body: how often the body has run, a u64 scalar, stands behind the `carried` parameters. One that
// draws does so from this number's stream; the body (`carries`) gives the next number behind its results.
absl::StatusOr<Ref<const ir::Function>> NumberedRun(const ir::Function& function, size_t carried, bool draws,
                                                    bool carries);

// Of a scan, a body that draws: from the stream of the index, its first parameter; it is added unless it is there (`indexed`).
absl::StatusOr<Ref<const ir::Function>> IndexedRun(const ir::Function& body, bool indexed);

}  // namespace weft::ops
