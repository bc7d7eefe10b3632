// Calls and scans that compute what another one of the same operands computes too. A gradient calls the forward step of a
// function, which gives the function's results and what the backward step reads; the call that was recorded before asks for the
// results alone. Compared is what they compute: nothing but the functions says that they belong together.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "src/ir/rewrite.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/passes/equal_nodes.h"
#include "src/passes/passes.h"
#include "src/runtime/status.h"

namespace weft::passes {
namespace {

using ir::Function;
using ir::Node;
using ir::Value;

// Maps each result of one function to the number of the other's that is the same; nothing if one has none.
using Places = std::optional<std::vector<uint32_t>>;

// The function's results on these parameters, on nodes of which no two are equal.
std::vector<Value> Distinct(const Function& function, std::span<const Value> parameters, NodeSet& set,
                            std::vector<Ref<const Node>>& alive) {
  ir::ValueMap map;
  for (size_t i = 0; i < parameters.size(); ++i) map.Bind(function.parameters()[i], parameters[i]);
  for (const Node* node : function.nodes().subspan(parameters.size())) {
    ir::Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? *map.Find(operand) : Value());
    Ref<const Node> made = ir::WithOperands(*node, operands, node->regions());
    const auto [found, added] = set.insert(made.get());
    const Ref<const Node> kept = Ref<const Node>::Share(*found);
    if (added) alive.push_back(std::move(made));
    for (uint32_t i = 0; i < node->results().size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, {kept, i});
  }
  std::vector<Value> results;
  for (const Value& result : function.results()) results.push_back(*map.Find(result));
  return results;
}

// The first `carried` results, which come back as parameters, have their places.
Places PlacesIn(const Function& larger, const Function& smaller, size_t carried) {
  if (smaller.parameters().size() != larger.parameters().size() || smaller.nodes().size() > larger.nodes().size()) {
    return std::nullopt;
  }
  NodeSet set;
  std::vector<Ref<const Node>> alive;
  const std::vector<Value> all = Distinct(larger, larger.parameters(), set, alive);
  std::vector<uint32_t> places;
  for (const Value& result : Distinct(smaller, larger.parameters(), set, alive)) {
    const bool carries = places.size() < carried;
    const auto at =
        std::find(all.begin() + static_cast<ptrdiff_t>(carries ? places.size() : carried), all.end(), result);
    if (at == all.end() || (carries && at != all.begin() + static_cast<ptrdiff_t>(places.size()))) return std::nullopt;
    places.push_back(static_cast<uint32_t>(at - all.begin()));
  }
  return places;
}

// Tells whether the node runs one function as often as its attributes say.
bool Runs(const Node& node) { return node.op().calls || &node.op() == &ops::kOp_scan; }

size_t CarriedBy(const Node& node) {
  return node.op().calls ? 0 : static_cast<size_t>(ops::ScanAttrs{node.attrs()}.carried());
}

class Merger {
 public:
  ir::Values operator()(const ir::RewriteCall& call) {
    if (!Runs(call.node)) return {};
    auto [found, added] = groups_.try_emplace(&call.function);
    if (added) found->second = GroupsOf(call.function);
    const auto group = found->second.find(&call.node);
    if (group == found->second.end()) return {};
    const Function* const mine = call.node.regions()[0].get();
    for (Callee& callee : group->second) {
      const Function* const function = callee.function;
      if (function == mine) {
        if (callee.results.empty())
          callee.results = ResultsOf(ir::WithOperands(call.node, call.operands, call.regions));
        return callee.results;
      }
      const size_t carried = CarriedBy(call.node);
      const auto [known, is_new] = places_.try_emplace({function, mine, carried});
      if (is_new) known->second = PlacesIn(*function, *mine, carried);
      if (!known->second) continue;
      if (callee.results.empty()) {
        const Ref<const Function>& region = call.rewritten.at(function);
        callee.results = call.b.EmitAll(call.node.op(), call.operands, call.node.attrs(), {&region, 1});
        if (!call.b.ok()) return {};
      }
      ir::Values results;
      for (const uint32_t place : *known->second) results.push_back(callee.results[place]);
      // Behind them what a scan kept.
      for (size_t i = function->results().size(); i < callee.results.size(); ++i) results.push_back(callee.results[i]);
      return results;
    }
    return {};
  }

 private:
  struct HashNode {
    size_t operator()(const Node* node) const {
      size_t hash = absl::HashOf(&node->op());
      for (const Value& operand : node->operands()) hash = absl::HashOf(hash, operand);
      return hash;
    }
  };
  // Compares calls without their functions.
  struct SameCall {
    bool operator()(const Node* a, const Node* b) const {
      return &a->op() == &b->op() && std::ranges::equal(a->operands(), b->operands()) && a->attrs() == b->attrs();
    }
  };
  struct Callee {
    const Function* function;
    ir::Values results = {};  // of the call, once it is made: where the first of its group was
  };
  static ir::Values ResultsOf(const Ref<const Node>& node) {
    ir::Values results;
    for (uint32_t i = 0; i < node->results().size(); ++i) results.push_back({node, i});
    return results;
  }
  // Groups functions that are called on the same operands, where that is more than one function. The one that may give
  // the others' results stands first.
  using Groups = absl::flat_hash_map<const Node*, std::vector<Callee>, HashNode, SameCall>;

  static Groups GroupsOf(const Function& function) {
    Groups groups;
    for (const Node* node : function.nodes()) {
      if (!Runs(*node)) continue;
      std::vector<Callee>& group = groups[node];
      const Function* const callee = node->regions()[0].get();
      if (std::ranges::find(group, callee, &Callee::function) == group.end()) group.push_back({callee});
    }
    absl::erase_if(groups, [](const auto& group) { return group.second.size() < 2; });
    for (auto& [node, group] : groups) {
      std::ranges::stable_sort(group, std::greater(), [](const Callee& callee) {
        return std::pair(callee.function->nodes().size(), callee.function->results().size());
      });
    }
    return groups;
  }

  absl::flat_hash_map<const Function*, Groups> groups_;
  absl::flat_hash_map<std::tuple<const Function*, const Function*, size_t>, Places> places_;
};

bool HasRule(const Node* node) { return &node->op() == &ops::kOp_custom_gradient; }

// Makes a call of each function with a gradient of its own, now that its gradient was taken: a call on the same
// operands as its forward's.
absl::StatusOr<ir::Module> WithoutRules(const ir::Module& module) {
  bool any = false;
  for (const Ref<const Function>& function : module.functions) {
    for (const Function* each : ir::CalleesFirst(*function)) any = any || std::ranges::any_of(each->nodes(), HasRule);
  }
  if (!any) return module;
  return ir::Rewrite(module, [](const ir::RewriteCall& call) {
    if (!HasRule(&call.node)) return ir::Values();
    ir::Values operands(call.operands.begin(),
                        call.operands.begin() + static_cast<ptrdiff_t>(call.regions[0]->parameters().size()));
    return call.b.EmitAll(ops::kOp_call, std::move(operands), {}, call.regions.first(1));
  });
}

}  // namespace

absl::StatusOr<ir::Module> MergeCalls(const ir::Module& module, const PipelineOptions&) {
  Merger merger;
  WEFT_ASSIGN_OR_RETURN(const ir::Module plain, WithoutRules(module));
  return ir::Rewrite(plain, [&](const ir::RewriteCall& call) { return merger(call); });
}

}  // namespace weft::passes
