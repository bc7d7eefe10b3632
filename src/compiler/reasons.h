// Why a program was not in memory: what differs between it and the known program that is most like it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/compiler/canonical.h"
#include "src/compiler/trace.h"

namespace weft::compiler {

// In the order of the counters missing::*.
enum class Reason : uint8_t {
  kFirst,       // nothing like it is known
  kArgument,    // shape, dtype or kind of an argument
  kConstant,    // a literal
  kAttribute,   // of an operation, or the function that it carries
  kOperations,  // more, fewer or others
  kOutputs,     // what is wanted of equal operations
  kTakenOver,   // which arguments' memory may be reused
  kPending,     // what was computed with it before is known now
  kTarget,      // made for another target than the engine's
  kDropped,     // memory had let go of it
  kCount,
};
std::string_view NameOf(Reason reason);
// Says in a sentence what the program's owner can do; may be empty.
std::string_view HintOf(Reason reason);

// The payload of an error that says why a program would have had to be made.
inline constexpr std::string_view kPayloadReason = "weft.reason";

// The part of a program that is kept for the comparison, in the order of recording, which does not depend on which
// results are wanted.
struct Outline {
  // The part of a node that a comparison of equal programs reads.
  struct Hashes {
    uint64_t structure = 0;  // operation and numbers of operands and results
    uint64_t whole = 0;      // that, types, attributes, literals and functions; not operands
  };
  struct Node {
    ir::Location at;
    uint32_t traced = 0;         // its place in the trace, and so in the canonical form
    uint32_t first_operand = 0;  // in `operands`
    NodeBytes bytes;             // in the canonical form
  };
  struct Argument {
    uint64_t kind = 0;  // type, and whether it is words
    uint32_t traced = 0;
    uint32_t user = 0;  // the first node that has it as an operand, and as which
    uint32_t operand = 0;
    bool taken_over = false;
  };
  std::vector<Hashes> hashes;  // of each node
  std::vector<Node> nodes;
  std::vector<Argument> arguments;
  // References among these nodes and arguments: of values by node, result and operand's place told apart by `results`.
  std::vector<uint64_t> operands;
  std::vector<uint64_t> outputs;  // in the order of the trace
  uint64_t structure = 0;         // of all nodes and references

  std::span<const uint64_t> OperandsOf(size_t node) const {
    const size_t end = node + 1 < nodes.size() ? nodes[node + 1].first_operand : operands.size();
    return std::span(operands).subspan(nodes[node].first_operand, end - nodes[node].first_operand);
  }
  size_t bytes() const {
    return hashes.capacity() * sizeof(Hashes) + nodes.capacity() * sizeof(Node) +
           arguments.capacity() * sizeof(Argument) + (operands.capacity() + outputs.capacity()) * sizeof(uint64_t);
  }
};
// Positions are those of the recording in hand. `canonical`, `passed`: as AppendCanonical wrote them of the trace.
Outline OutlineOf(const Trace& trace, std::string_view canonical, const PassedNodes& passed);
// Operations and references of an outline, as a number that is the same in every process and never 0. `nodes` are those of the trace.
uint64_t ShapeOf(const Outline& outline, std::span<const ir::Node* const> nodes);

// The cause of the first difference, not what follows from it: arguments before nodes, nodes before outputs, and of nodes the first
// in recording order whose operands are equal.
struct Difference {
  static constexpr uint32_t kNone = UINT32_MAX;
  Reason reason = Reason::kFirst;
  // In outlines; kNone where the program has nothing there.
  uint32_t node = kNone, node_before = kNone;
  uint32_t argument = kNone, argument_before = kNone;
  uint32_t result = 0;  // of outputs
  size_t nodes = 0;     // of the program
  size_t others = 0;    // nodes that differ beside the one that is named
  ir::Location at;      // unknown: at none
  size_t edits = 0;     // what is told apart; fewer is nearer
};
// Nothing if the two have less than half in common.
std::optional<Difference> Compare(const Outline& before, const Outline& now);

// The difference in words: "constant at train.c:9 is 1.2, was 1.1; all else equal (25 nodes)". Reads the nodes that it names from
// the two canonical forms; the whole forms, which takes longer, only where one of these carries a function.
std::string TextOf(const Difference& difference, const Outline& before, std::string_view canonical_before,
                   const Outline& now, std::string_view canonical_now);

}  // namespace weft::compiler
