// Calls that compute what another call of the same operands computes too. A gradient calls the forward step of a function,
// which gives the function's results and what the backward step reads; the call that was recorded before asks for the results
// alone. Compared is what they compute: nothing but the functions says that they belong together.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "src/ir/rewrite.h"
#include "src/ops/registry.h"
#include "src/passes/equal_nodes.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Function;
using ir::Node;
using ir::Value;

// For each result of one function the number of the other's that is the same, or nothing if one has none.
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

Places PlacesIn(const Function& larger, const Function& smaller) {
  if (smaller.parameters().size() != larger.parameters().size() || smaller.nodes().size() > larger.nodes().size()) {
    return std::nullopt;
  }
  NodeSet set;
  std::vector<Ref<const Node>> alive;
  const std::vector<Value> all = Distinct(larger, larger.parameters(), set, alive);
  std::vector<uint32_t> places;
  for (const Value& result : Distinct(smaller, larger.parameters(), set, alive)) {
    const auto at = std::ranges::find(all, result);
    if (at == all.end()) return std::nullopt;
    places.push_back(static_cast<uint32_t>(at - all.begin()));
  }
  return places;
}

class Merger {
 public:
  ir::Values operator()(const ir::RewriteCall& call) {
    if (!call.node.op().calls) return {};
    auto [found, added] = groups_.try_emplace(&call.function);
    if (added) found->second = GroupsOf(call.function);
    const auto group = found->second.find(std::span(call.node.operands()));
    if (group == found->second.end()) return {};
    const Function* const mine = call.node.regions()[0].get();
    for (Callee& callee : group->second) {
      const Function* const function = callee.function;
      if (function == mine) {
        if (callee.results.empty())
          callee.results = ResultsOf(ir::WithOperands(call.node, call.operands, call.regions));
        return callee.results;
      }
      const auto [known, is_new] = places_.try_emplace({function, mine});
      if (is_new) known->second = PlacesIn(*function, *mine);
      if (!known->second) continue;
      if (callee.results.empty()) {
        const Ref<const Function>& region = call.rewritten.at(function);
        callee.results = call.b.EmitAll(call.node.op(), call.operands, call.node.attrs(), {&region, 1});
        if (!call.b.ok()) return {};
      }
      ir::Values results;
      for (const uint32_t place : *known->second) results.push_back(callee.results[place]);
      return results;
    }
    return {};
  }

 private:
  struct HashOperands {
    size_t operator()(std::span<const Value> operands) const {
      size_t hash = operands.size();
      for (const Value& operand : operands) hash = absl::HashOf(hash, operand);
      return hash;
    }
  };
  struct SameOperands {
    bool operator()(std::span<const Value> a, std::span<const Value> b) const { return std::ranges::equal(a, b); }
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
  // What is called on operands, where that is more than one function: the one that may give the others' results first.
  using Groups = absl::flat_hash_map<std::span<const Value>, std::vector<Callee>, HashOperands, SameOperands>;

  static Groups GroupsOf(const Function& function) {
    Groups groups;
    for (const Node* node : function.nodes()) {
      if (!node->op().calls) continue;
      std::vector<Callee>& group = groups[node->operands()];
      const Function* const callee = node->regions()[0].get();
      if (std::ranges::find(group, callee, &Callee::function) == group.end()) group.push_back({callee});
    }
    absl::erase_if(groups, [](const auto& group) { return group.second.size() < 2; });
    for (auto& [operands, group] : groups) {
      std::ranges::stable_sort(group, std::greater(), [](const Callee& callee) {
        return std::pair(callee.function->nodes().size(), callee.function->results().size());
      });
    }
    return groups;
  }

  absl::flat_hash_map<const Function*, Groups> groups_;
  absl::flat_hash_map<std::pair<const Function*, const Function*>, Places> places_;
};

}  // namespace

absl::StatusOr<ir::Module> MergeCalls(const ir::Module& module, const PipelineOptions&) {
  Merger merger;
  return ir::Rewrite(module, [&](const ir::RewriteCall& call) { return merger(call); });
}

}  // namespace weft::passes
