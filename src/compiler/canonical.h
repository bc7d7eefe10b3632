// The canonical form of a trace: bytes that are equal exactly if the program is the same one. It is the cache key's
// preimage, in memory and on disk.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "src/compiler/trace.h"
#include "src/ir/function.h"

namespace weft::compiler {

// In: operation names, attributes, types, operand numbers, literals' contents, regions, extras, arguments' roles, outputs
// the donation pattern, and how values lie where more than one process runs it. Out: values of inputs and scalars, buffer
// identities, node ids, positions.
void AppendCanonical(const Trace& trace, std::string* out);
// The way back: a function whose parameters are the trace's arguments, with their roles, and whose results are its outputs. INTERNAL
// for what was not written so. `participants`: who runs it; may be null.
absl::StatusOr<Ref<const ir::Function>> ReadCanonical(std::string_view canonical,
                                                      ir::Participants* participants = nullptr);
// The same as the first for a function alone.
void AppendCanonical(const ir::Function& function, std::string* out);

}  // namespace weft::compiler
