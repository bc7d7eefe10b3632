// A piece of recorded graph that is to become one launch, flattened: what the engine hands to the program cache. Operands
// are numbers, so that two leaves are never confused. Vectors keep their capacity from cut to cut.
#pragma once

#include <cstdint>
#include <vector>

#include "src/ir/mesh.h"
#include "src/ir/node.h"

namespace weft::compiler {

// Thread rule: one thread. The nodes are kept alive by the values that are being computed.
struct Trace {
  // A reference to a value: nothing (absent optional operand), an argument, or a result of a node of the trace.
  using Reference = uint32_t;
  static constexpr Reference kAbsent = 0;
  static constexpr Reference OfArgument(uint32_t argument) { return 1 + 2 * argument; }
  static constexpr Reference OfValue(uint32_t value) { return 2 + 2 * value; }
  static constexpr bool IsArgument(Reference reference) { return (reference & 1) != 0; }
  static constexpr uint32_t IndexOf(Reference reference) { return (reference - 1) / 2; }

  struct Argument {
    const ir::Node* node = nullptr;  // whose result the argument replaces
    uint32_t result = 0;
    uint32_t words = 0;       // 0: a buffer; else its share of the argument block, in argument order
    int32_t donated_to = -1;  // buffer: the output that takes it over
    const ir::Type& type() const { return node->type(result); }
  };

  std::vector<Argument> arguments;     // in order of first use
  std::vector<const ir::Node*> nodes;  // operands first, depth first from the outputs: independent of recording order
  std::vector<Reference> operands;     // of all nodes, one after the other
  std::vector<Reference> outputs;      // values of nodes of the trace, distinct
  uint32_t values = 0;                 // results of all nodes; node after node
  uint32_t words = 0;                  // size of the argument block
  ir::Participants participants;       // who runs it; its lists are of arguments and outputs

  void Clear() {
    arguments.clear();
    nodes.clear();
    operands.clear();
    outputs.clear();
    values = words = 0;
    participants = {};
  }
};

}  // namespace weft::compiler
