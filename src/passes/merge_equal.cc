// Common subexpressions. Random operations are functions of their state, so equal states give equal numbers.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "src/ir/rewrite.h"
#include "src/passes/equal_nodes.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Node;

// Tokens order effects; operations that touch them are not functions of their operands.
bool HasToken(const Node& node) {
  auto is_token = [](const ir::Type& type) { return type.kind == ir::Type::Kind::kToken; };
  for (const ir::Value& operand : node.operands()) {
    if (operand && is_token(operand.type())) return true;
  }
  return std::ranges::any_of(node.results(), is_token);
}

absl::StatusOr<Ref<const ir::Function>> MergeIn(const ir::Function& function) {
  // Each function has a set of its own: no node in a region may be an operand outside it.
  absl::flat_hash_map<const ir::Function*, NodeSet> seen;
  std::vector<Ref<const Node>> alive;  // the set's nodes, some of them new
  return ir::Rewrite(function, [&](const ir::RewriteCall& call) -> ir::Values {
    if (call.node.op().opaque || HasToken(call.node)) return {};
    Ref<const Node> node = ir::WithOperands(call.node, call.operands, call.regions);
    auto [first, added] = seen[&call.function].insert(node.get());
    if (added) alive.push_back(node);
    const Ref<const Node> kept = Ref<const Node>::Share(*first);
    ir::Values results;
    for (uint32_t i = 0; i < kept->results().size(); ++i) results.push_back(ir::Value{kept, i});
    return results;
  });
}

}  // namespace

absl::StatusOr<ir::Module> MergeEqual(const ir::Module& module, const PipelineOptions&) {
  ir::Module result = module;
  for (Ref<const ir::Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, MergeIn(*function));
  }
  return result;
}

}  // namespace weft::passes
