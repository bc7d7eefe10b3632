// Composites to primitives, by the operations' own expansions.
#include <algorithm>
#include <iterator>

#include "src/ir/rewrite.h"
#include "src/ops/call.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

// Expansions contain composites (a loss contains log_softmax contains …) about three levels deep. One that contains
// itself would never end.
constexpr int kMaxRounds = 16;

// Composites whose gradient repeats their expansion. In a function that has both, merging makes one of the two: a kernel of
// the backend would come on top.
constexpr const ir::OpDef* kRepeatedByGradient[] = {&ops::kOp_scaled_dot_product_attention};

// Whether another node reads the first operand, as the gradient does.
bool MayHaveGradient(const ir::Function& function, const ir::Node& node) {
  const ir::Value& read = node.operands()[0];
  return std::any_of(function.nodes().begin(), function.nodes().end(), [&](const ir::Node* other) {
    return other != &node &&
           std::find(other->operands().begin(), other->operands().end(), read) != other->operands().end();
  });
}

bool StaysWhole(const ir::RewriteCall& call, const PipelineOptions& options) {
  if (!options.claims || !options.claims(call.node)) return false;
  const bool repeated = std::find(std::begin(kRepeatedByGradient), std::end(kRepeatedByGradient), &call.node.op()) !=
                        std::end(kRepeatedByGradient);
  return !repeated || !MayHaveGradient(call.function, call.node);
}

}  // namespace

absl::StatusOr<ir::Module> ExpandComposites(const ir::Module& module, const PipelineOptions& options) {
  ir::Module result = module;
  const ir::OpDef* last = nullptr;
  for (int round = 0; round < kMaxRounds; ++round) {
    last = nullptr;
    absl::Status status;
    auto rule = [&](const ir::RewriteCall& call) -> ir::Values {
      const ir::OpDef& op = call.node.op();
      // Gradients have been taken by now.
      if (&op == &ops::kOp_custom_call && !call.regions.empty()) {
        return call.b.EmitAll(op, call.operands, call.node.attrs());
      }
      if (op.kind != ir::Kind::kComposite || op.expand == nullptr || !status.ok()) return {};
      if (StaysWhole(call, options)) return {};
      last = &op;
      ir::Values results(call.node.results().size());
      status = ops::Expand(call.b, op, call.operands, call.node.attrs(), call.node.results(),
                           std::span(results.data(), results.size()), call.regions);
      if (!status.ok() || !call.b.ok()) return {};
      return results;
    };
    WEFT_ASSIGN_OR_RETURN(result, ir::Rewrite(result, rule));
    WEFT_RETURN_IF_ERROR(status);
    if (last == nullptr) return result;
  }
  return InternalError("the expansion of ", last->name, " does not end within ", kMaxRounds, " rounds");
}

}  // namespace weft::passes
