// Loops carry only what somebody reads in the end or what decides it, and branches see only the captures that they use.
#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::passes {
namespace {

using ir::Function;
using ir::Node;
using ir::Value;

// Results of nodes that a function reads.
using Uses = HashSet<Value>;

Uses UsesOf(const Function& function) {
  Uses uses;
  for (const Value& result : function.results()) uses.insert(result);
  for (const Node* node : function.nodes()) {
    for (const Value& operand : node->operands()) {
      if (operand) uses.insert(operand);
    }
  }
  return uses;
}

// Which parameters values of one function are made of; values may be added one after the other.
class Reached {
 public:
  explicit Reached(const Function& function) : parameters_(function.parameters().size()) {
    for (size_t i = 0; i < parameters_.size(); ++i) index_.emplace(function.parameters()[i].node.get(), i);
  }
  // Tells `found` of each parameter that is new.
  template <typename F>
  void Add(const Value& value, F&& found) {
    std::vector<const Node*> open;
    const auto visit = [&](const Value& v) {
      if (v && seen_.insert(v.node.get()).second) open.push_back(v.node.get());
    };
    visit(value);
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      if (const auto at = index_.find(node); at != index_.end()) {
        parameters_[at->second] = true;
        found(at->second);
      }
      for (const Value& operand : node->operands()) visit(operand);
    }
  }
  bool operator[](size_t parameter) const { return parameters_[parameter]; }

 private:
  std::vector<bool> parameters_;
  HashMap<const Node*, size_t> index_;
  HashSet<const Node*> seen_;
};

// The parts of a loop that stay: carried values, and captures of either function.
struct Kept {
  std::vector<bool> carried;
  Reached condition, body;
  bool all = true;
};

Kept WhatStays(const Function& condition, const Function& body, std::vector<bool> used) {
  Kept kept{std::move(used), Reached(condition), Reached(body)};
  const size_t carried = kept.carried.size();
  std::vector<size_t> open;
  const auto need = [&](size_t parameter) {
    if (parameter >= carried || kept.carried[parameter]) return;
    kept.carried[parameter] = true;
    open.push_back(parameter);
  };
  for (size_t i = 0; i < carried; ++i) {
    if (kept.carried[i]) open.push_back(i);
  }
  kept.condition.Add(condition.results()[0], need);
  while (!open.empty()) {
    const size_t i = open.back();
    open.pop_back();
    kept.body.Add(body.results()[i], need);
  }
  for (size_t i = 0; i < carried; ++i) kept.all = kept.all && kept.carried[i];
  for (size_t i = carried; i < condition.parameters().size(); ++i) kept.all = kept.all && kept.condition[i];
  for (size_t i = carried; i < body.parameters().size(); ++i) kept.all = kept.all && kept.body[i];
  return kept;
}

// The function without the parameters and results that go; adds the operands for its captures.
Ref<const Function> Shrunk(const Function& function, const Kept& kept, const Reached& reached, bool carries,
                           std::span<const Value> captures, ir::Values* operands) {
  const size_t carried = kept.carried.size();
  std::vector<Value> parameters, results;
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    if (i < carried ? !kept.carried[i] : !reached[i]) continue;
    parameters.push_back(function.parameters()[i]);
    if (i >= carried) operands->push_back(captures[i - carried]);
  }
  for (size_t i = 0; i < function.results().size(); ++i) {
    if (!carries || kept.carried[i]) results.push_back(function.results()[i]);
  }
  return Function::Create(function.name(), std::move(parameters), std::move(results));
}

ir::Values Prune(const ir::RewriteCall& call, const Uses& uses) {
  const Function &condition = *call.regions[0], &body = *call.regions[1];
  const size_t carried = body.results().size(), asks = condition.parameters().size() - carried;
  std::vector<bool> used;
  for (uint32_t i = 0; i < carried; ++i) used.push_back(uses.contains(Value{Ref<const Node>::Share(&call.node), i}));
  const Kept kept = WhatStays(condition, body, std::move(used));
  if (kept.all) return {};
  ir::Values operands;
  for (size_t i = 0; i < carried; ++i) {
    if (kept.carried[i]) operands.push_back(call.operands[i]);
  }
  const size_t stay = operands.size();
  if (stay == 0) return {};
  const std::span<const Value> captures = std::span(call.operands.data(), call.operands.size()).subspan(carried);
  const Ref<const Function> functions[] = {
      Shrunk(condition, kept, kept.condition, false, captures.first(asks), &operands),
      Shrunk(body, kept, kept.body, true, captures.subspan(asks), &operands)};
  const ir::Values made = call.b.EmitAll(ops::kOp_while, std::move(operands), {}, functions);
  if (!call.b.ok()) return {};
  ir::Values results;
  for (size_t i = 0, next = 0; i < carried; ++i) results.push_back(kept.carried[i] ? made[next++] : call.operands[i]);
  return results;
}

// The functions of a case without the parameters that they do not use.
ir::Values PruneCase(const ir::RewriteCall& call) {
  ir::Values operands = {call.operands[0]};
  std::vector<Ref<const Function>> branches;
  size_t at = 1;
  for (const Ref<const Function>& branch : call.regions) {
    const Uses uses = UsesOf(*branch);
    std::vector<Value> parameters;
    for (const Value& parameter : branch->parameters()) {
      if (uses.contains(parameter)) {
        parameters.push_back(parameter);
        operands.push_back(call.operands[at]);
      }
      ++at;
    }
    const std::span<const Value> results = branch->results();
    const bool all = parameters.size() == branch->parameters().size();
    branches.push_back(all ? branch
                           : Function::Create(branch->name(), std::move(parameters), {results.begin(), results.end()}));
  }
  if (operands.size() == call.operands.size()) return {};
  return call.b.EmitAll(ops::kOp_case, std::move(operands), {}, branches);
}

}  // namespace

absl::StatusOr<ir::Module> PruneLoops(const ir::Module& module, const PipelineOptions&) {
  HashMap<const Function*, Uses> uses;
  return ir::Rewrite(module, [&](const ir::RewriteCall& call) -> ir::Values {
    if (&call.node.op() == &ops::kOp_case) return PruneCase(call);
    if (&call.node.op() != &ops::kOp_while) return {};
    auto [found, added] = uses.try_emplace(&call.function);
    if (added) found->second = UsesOf(call.function);
    return Prune(call, found->second);
  });
}

}  // namespace weft::passes
