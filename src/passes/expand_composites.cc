// Composites to primitives, by the operations' own expansions.
#include "src/ir/rewrite.h"
#include "src/ops/call.h"
#include "src/ops/collective/processes.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

// Expansions contain composites (a loss contains log_softmax contains …) about three levels deep. One that contains
// itself would never end.
constexpr int kMaxRounds = 16;

}  // namespace

absl::StatusOr<ir::Module> ExpandComposites(const ir::Module& module, const PipelineOptions& options) {
  ir::Module result = module;
  const bool alone = module.participants.alone();
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
      if (options.claims && options.claims(call.node)) return {};
      // An expansion is what one process does.
      if (!alone && ops::SpeaksOfProcesses(op)) return {};
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
