// Which calls stay calls: code that is made once for several of them.
#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/status.h"

namespace weft::passes {
namespace {

// Fewer nodes are dearer to keep apart, where nothing fuses across, than to compile again.
constexpr size_t kLeastNodes = 24;

// The limit of operations with calls written out: 256 MB of nodes, and the memory that backends need for them.
constexpr int64_t kMostWritten = int64_t{1} << 20;

}  // namespace

absl::Status CheckCalls(const ir::Module& module) {
  for (const Ref<const ir::Function>& function : module.functions) {
    const int64_t written = ir::WrittenOut(*function);
    if (written <= kMostWritten) continue;
    int64_t there = 0;
    for (const ir::Function* each : ir::CalleesFirst(*function)) there += static_cast<int64_t>(each->nodes().size());
    if (written / 2 < there) continue;  // large, but not by its calls
    return UserErrorOf(
        absl::StatusCode::kUnimplemented, "the program has ", there,
        " operations and functions that call others again and again: with every call written out there are ",
        written == INT64_MAX ? "more than 2^63" : absl::StrCat(written), ", at most ", kMostWritten,
        " are supported; where the same function runs many times, a loop (scan, for, while) does it");
  }
  return absl::OkStatus();
}

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
  WEFT_RETURN_IF_ERROR(CheckCalls(module));
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
