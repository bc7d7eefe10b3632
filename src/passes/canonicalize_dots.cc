// Transposed operands of dot_general. Batch and contracting dimensions may lie anywhere in an operand, so a transpose
// before them is only another numbering. The result's order [batch, free of x, free of y] takes the free dimensions in
// the operand's order: the transpose goes only if it keeps that.
#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Ints;

// Positions of x's dimensions in the transpose's operand; false if the free ones change their order.
bool Renumber(const Ints& permutation, Ints& batch, Ints& contracting) {
  int64_t last = -1;
  for (size_t d = 0; d < permutation.size(); ++d) {
    const auto at = static_cast<int64_t>(d);
    if (std::ranges::count(batch, at) != 0 || std::ranges::count(contracting, at) != 0) continue;
    if (permutation[d] < last) return false;
    last = permutation[d];
  }
  for (int64_t& d : batch) d = permutation[d];
  for (int64_t& d : contracting) d = permutation[d];
  return true;
}

}  // namespace

absl::StatusOr<ir::Module> CanonicalizeDots(const ir::Module& module, const PipelineOptions&) {
  return ir::Rewrite(module, [](const ir::RewriteCall& call) -> ir::Values {
    if (&call.node.op() != &ops::kOp_dot_general) return {};
    ir::Attrs attrs = call.node.attrs();
    ir::Values operands = call.operands;
    bool changed = false;
    for (size_t side = 0; side < 2; ++side) {
      if (&operands[side].node->op() != &ops::kOp_transpose) continue;
      // Schema: lhs_batch, rhs_batch, lhs_contracting, rhs_contracting.
      Ints batch = attrs.IntList(side);
      Ints contracting = attrs.IntList(2 + side);
      if (!Renumber(operands[side].node->attrs().IntList(0), batch, contracting)) continue;
      attrs.set(side, std::move(batch));
      attrs.set(2 + side, std::move(contracting));
      operands[side] = ir::Value(operands[side].node->operands()[0]);
      changed = true;
    }
    if (!changed) return {};
    return {call.b.Emit(call.node.op(), std::move(operands), std::move(attrs))};
  });
}

}  // namespace weft::passes
