// The canonical form of a trace: bytes that are equal exactly if the program is the same one. It is the cache key's
// preimage, in memory and on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "src/compiler/trace.h"
#include "src/ir/function.h"

namespace weft::compiler {

// In: operation names, attributes, types, operand numbers, literals' contents, regions, extras, arguments' roles, outputs
// the donation pattern, and how values lie where more than one process runs it. Out: values of inputs and scalars, buffer
// identities, node ids, positions.
void AppendCanonical(const Trace& trace, std::string* out);
// The place of a node in a canonical form, without its operands. It can be read alone, and is the same in each form. Both are 0
// where that is not so: of nodes that carry functions, which are spelled once for all, and of forms above 4 GiB.
struct NodeBytes {
  uint32_t begin = 0, end = 0;
};
// A node of a trace as the writer of the form passes it: what an outline asks of it, in one piece, since nodes lie far apart.
struct PassedNode {
  NodeBytes bytes;  // counted from where the form begins
  const ir::OpDef* op = nullptr;
  uint64_t id = 0;
  ir::Location at;
  uint32_t first_operand = 0, first_value = 0;  // of the trace's operands and values
};
struct PassedNodes {
  std::vector<PassedNode> nodes;  // of the trace, and one behind them whose first operand and value are the ends
  uint64_t least_id = 0, greatest_id = 0;
};
void AppendCanonical(const Trace& trace, std::string* out, PassedNodes* passed);
// The way back: a function whose parameters are the trace's arguments, with their roles, and whose results are its outputs. INTERNAL
// for what was not written so. `participants`: who runs it; may be null.
absl::StatusOr<Ref<const ir::Function>> ReadCanonical(std::string_view canonical,
                                                      ir::Participants* participants = nullptr);
// One node of it, with neither operands nor position; null for what was not written so.
Ref<const ir::Node> ReadNode(std::string_view bytes);
// The arguments of it alone.
struct CanonicalArgument {
  ir::Type type;
  bool words = false;
};
absl::StatusOr<std::vector<CanonicalArgument>> ReadArguments(std::string_view canonical);
// The same as the first for a function alone.
void AppendCanonical(const ir::Function& function, std::string* out);

}  // namespace weft::compiler
