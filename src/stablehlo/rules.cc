// See rules.h.
#include "src/stablehlo/rules.h"

#include "absl/strings/str_cat.h"
#include "src/ops/call.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/lasting.h"

namespace weft::stablehlo {
namespace {

using RuleMap = HashMap<std::string, Rule>;  // a rule's name is its key

// Primitives and what else has a name of StableHLO's; macros and composites of ours ("weft.…") have none.
RuleMap MakeRules() {
  RuleMap rules;
  for (const ir::OpDef* op : ops::AllOps()) {
    const bool ours = op->name.starts_with("weft.") || op->parameter || op->lowering == ir::Lowering::kStructural;
    // reduce_by, sort_by, …: those with a body of their own, which StableHLO does not tell from the others.
    if ((ours || op->name.ends_with("_by")) && op != &ops::kOp_constant) continue;
    const auto entry = rules.try_emplace(absl::StrCat("stablehlo.", op->name)).first;
    entry->second = {entry->first, op->read != nullptr ? op->read : ReadBySchema, op};
  }
  for (std::span<const Rule> table : {Rewrites(), ChloRules(), ChloProductRules(), LapackRules()}) {
    for (const Rule& rule : table) rules.try_emplace(std::string(rule.name), rule);
  }
  return rules;
}

constinit Lasting<RuleMap> g_rules;

const RuleMap& AllRules() {
  return g_rules.Get([] { return std::make_unique<RuleMap>(MakeRules()); });
}

}  // namespace

const Rule* FindRule(std::string_view name) {
  const auto found = AllRules().find(std::string(name));
  return found == AllRules().end() ? nullptr : &found->second;
}

std::vector<std::string> RuleNames() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : AllRules()) names.push_back(name);
  return names;
}

ir::Values ReadBySchema(ir::StableHloOp& op) {
  // How, not what: precision is always the best, sorted or unique indices gain nothing here.
  op.Understand({"precision_config", "indices_are_sorted", "unique_indices"});
  return ops::CallAll(op.b, *op.op, op.OperandsAndCaptures(), op.SchemaAttrs(), op.Functions());
}

}  // namespace weft::stablehlo
