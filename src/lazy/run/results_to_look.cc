// See results_to_look.h.
#include "src/lazy/run/results_to_look.h"

#include <ranges>

#include "src/ir/op_def.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"

namespace weft::lazy {
namespace {

// Tells whether the node's result is bad wherever its operand number `operand` is.
bool Keeps(const ir::Node& node, size_t operand) {
  const ir::OpDef* const op = &node.op();
  if (op == &ops::kOp_div) return operand == 0;
  return op == &ops::kOp_stop_gradient || op == &ops::kOp_add || op == &ops::kOp_sub || op == &ops::kOp_mul ||
         op == &ops::kOp_neg;
}

// The value that a result repeats: parameters and moments are assigned behind stop_gradient.
const ir::Node* Repeated(const ir::Node* node) {
  while (&node->op() == &ops::kOp_stop_gradient && node->operands()[0].node->results().size() == 1) {
    node = node->operands()[0].node.get();
  }
  return node;
}

}  // namespace

std::vector<bool> ResultsToLook(const ir::Function& function) {
  HashSet<const ir::Node*> results, elsewhere;  // those whose bad numbers show in what uses them
  for (const ir::Value& result : function.results()) results.insert(Repeated(result.node.get()));
  for (const ir::Node* const node : function.nodes() | std::views::reverse) {
    const bool shows = results.contains(node) || elsewhere.contains(node);
    const auto operands = node->operands();
    for (size_t i = 0; shows && i < operands.size(); ++i) {
      const ir::Value& operand = operands[i];
      if (!operand || !IsFloat(operand.dtype()) || !Keeps(*node, i) || operand.type() != node->type()) continue;
      elsewhere.insert(operand.node.get());
    }
  }
  std::vector<bool> look;
  for (const ir::Value& result : function.results()) {
    const ir::Node* const node = result.node.get();
    look.push_back(node->results().size() != 1 || (!elsewhere.contains(node) && !elsewhere.contains(Repeated(node))));
  }
  return look;
}

}  // namespace weft::lazy
