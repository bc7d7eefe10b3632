// Local algebra, by the operations' own rules (OpDef::simpler). Each keeps every bit of the result.
#include "src/ir/rewrite.h"
#include "src/ops/registry.h"
#include "src/passes/join_pads.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Value;

Value Simpler(const ir::SimplerCall& call) {
  const ir::OpDef& op = call.node.op();
  if (op.simpler == nullptr || call.node.extras() != nullptr) return {};
  Value simpler = op.simpler(call);
  // This rule (slices of a tensor contribute to its gradient) is about several operations, so that none owns it.
  return !simpler && &op == &ops::kOp_add ? JoinPads(call.b, call.operands[0], call.operands[1]) : simpler;
}

}  // namespace

absl::StatusOr<ir::Module> Simplify(const ir::Module& module, const PipelineOptions&) {
  return ir::Rewrite(module, [&](const ir::RewriteCall& call) -> ir::Values {
    Value value = Simpler({call.b, call.node, call.operands});
    if (!value) return {};
    // A rule's result may be simpler still (a merged reshape that changes nothing). Each step removes a node.
    while (call.b.ok() && value) {
      Value next = Simpler({call.b, *value.node, value.node->operands()});
      if (!next) break;
      value = std::move(next);
    }
    return {value};
  });
}

}  // namespace weft::passes
