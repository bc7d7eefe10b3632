// See cost.h.
#include "src/compiler/cost.h"

#include <unordered_map>
#include <vector>

#include "src/ir/rewrite.h"
#include "src/passes/passes.h"

namespace weft::compiler {
namespace {

using ir::Node;

// Remembers the costs of functions that are known already.
class Costs {
 public:
  absl::StatusOr<Cost> Of(const ir::Function& function) {
    Cost all;
    for (const Node* node : function.nodes()) {
      WEFT_ASSIGN_OR_RETURN(const Cost one, OfNode(*node));
      all = {all.flops + one.flops, all.transcendentals + one.transcendentals};
    }
    return known_[&function] = all;
  }

 private:
  absl::StatusOr<Cost> OfNode(const Node& node) {
    const ir::OpDef& op = node.op();
    if (op.work != nullptr) {
      std::vector<Cost> regions;  // callees come first
      for (const Ref<const ir::Function>& region : node.regions()) regions.push_back(known_[region.get()]);
      return op.work({node, regions});
    }
    // Operations that only move elements cost nothing; literals and indices do not either.
    if (node.operands().empty() || op.lowering != ir::Lowering::kScalar) return Cost{};
    const double count = node.type().is_tensor() ? static_cast<double>(CountOf(node.type().dims)) : 0;
    return op.cost == ir::Cost::kCheap ? Cost{.flops = count} : Cost{.transcendentals = count};
  }

  std::unordered_map<const ir::Function*, Cost> known_;
};

}  // namespace

absl::StatusOr<Cost> CostOf(const ir::Function& function) {
  ir::Module module;
  module.functions.push_back(ir::OwnNodes(function));
  WEFT_RETURN_IF_ERROR(passes::CheckCalls(module));
  WEFT_ASSIGN_OR_RETURN(module, passes::MergeCalls(module, {}));
  // A composite that says what it computes stays: a scan knows how long it is, its expansion does not.
  const passes::PipelineOptions options = {.claims = [](const Node& node) { return node.op().work != nullptr; }};
  WEFT_ASSIGN_OR_RETURN(module, passes::ExpandComposites(module, options));
  Costs costs;
  Cost all;
  for (const ir::Function* one : ir::CalleesFirst(module.main())) {
    WEFT_ASSIGN_OR_RETURN(all, costs.Of(*one));
  }
  return all;
}

}  // namespace weft::compiler
