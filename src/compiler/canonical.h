// The canonical form of a trace: bytes that are equal exactly if the program is the same one. It is the cache key's
// preimage, in memory and on disk.
#pragma once

#include <string>
#include <string_view>

#include "src/compiler/trace.h"
#include "src/ir/function.h"

namespace weft::compiler {

// In: operation names, attributes, types, operand numbers, literals' contents, regions, extras, arguments' roles, outputs
// and the donation pattern. Out: values of inputs and scalars, buffer identities, node ids, positions.
void AppendCanonical(const Trace& trace, std::string* out);
// The same for a function alone.
void AppendCanonical(const ir::Function& function, std::string* out);

}  // namespace weft::compiler
