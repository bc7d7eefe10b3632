// Which calls stay calls: code that is made once for several of them.
#include "src/ir/rewrite.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::passes {
namespace {

// Fewer nodes are dearer to keep apart, where nothing fuses across, than to compile again.
constexpr size_t kLeastNodes = 24;

}  // namespace

absl::StatusOr<ir::Module> InlineCalls(const ir::Module& module, const PipelineOptions& options) {
  HashMap<const ir::Function*, int> calls;
  for (const Ref<const ir::Function>& function : module.functions) {
    for (const ir::Function* each : ir::CalleesFirst(*function)) {
      for (const ir::Node* node : each->nodes()) {
        if (node->op().calls) ++calls[node->regions()[0].get()];
      }
    }
  }
  if (calls.empty()) return module;
  return ir::Rewrite(module, [&](const ir::RewriteCall& call) -> ir::Values {
    if (!call.node.op().calls) return {};
    const ir::Function& callee = *call.regions[0];
    const bool stays = options.claims && options.claims(call.node) && calls[call.node.regions()[0].get()] > 1 &&
                       callee.nodes().size() >= kLeastNodes;
    if (stays) return {};
    return ir::Inline(callee, call.operands);
  });
}

}  // namespace weft::passes
