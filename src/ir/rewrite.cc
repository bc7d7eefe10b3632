// The rebuilding loop.
#include "src/ir/rewrite.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

#include "src/ir/text.h"

namespace weft::ir {
namespace {

// What became of regions: several nodes may carry one.
using Rewritten = absl::flat_hash_map<const Function*, Ref<const Function>>;

absl::StatusOr<Ref<const Function>> RewriteAt(const Function& function, RewriteRule rule, int depth, Rewritten& known) {
  if (depth > kMaxRegionDepth) return InternalError("regions nest deeper than ", kMaxRegionDepth);
  ValueMap map;
  map.reserve(function.nodes().size());
  bool changed = false;
  for (const Value& parameter : function.parameters()) map.Bind(parameter, parameter);
  Builder b;
  Values operands;
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    operands.clear();
    for (const Value& operand : node->operands()) {
      const Value* found = operand ? map.Find(operand) : nullptr;
      if (operand && found == nullptr) {
        return InternalError("rewriting @", function.name(), ": an operand is not computed before its use\n  ",
                             PrintNode(function, *node));
      }
      operands.push_back(operand ? *found : Value());
    }
    std::vector<Ref<const Function>> regions(node->regions().begin(), node->regions().end());
    for (Ref<const Function>& region : regions) {
      const auto found = known.find(region.get());
      if (found != known.end()) {
        region = found->second;
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(Ref<const Function> rewritten, RewriteAt(*region, rule, depth + 1, known));
      known.emplace(region.get(), rewritten);
      region = std::move(rewritten);  // the old one stays with the node
    }
    b.set_location(node->location());
    Values results = rule(RewriteCall{b, function, *node, operands, regions});
    WEFT_RETURN_IF_ERROR(b.status());
    if (results.empty()) {
      Ref<const Node> kept = WithOperands(*node, operands, regions);
      for (uint32_t i = 0; i < node->results().size(); ++i) results.push_back(Value{kept, i});
    }
    if (results.size() != node->results().size()) {
      return InternalError("a rewrite of ", node->op().name, " gives ", results.size(), " results instead of ",
                           node->results().size());
    }
    for (uint32_t i = 0; i < results.size(); ++i) {
      const Value old{Ref<const Node>::Share(node), i};
      if (!(results[i].type() == old.type())) {
        return InternalError("a rewrite changes the type ", ToString(old.type()), " to ", ToString(results[i].type()),
                             "\n  ", PrintNode(function, *node));
      }
      changed = changed || !(results[i] == old);
      map.Bind(old, std::move(results[i]));
    }
  }
  if (!changed) return Ref<const Function>::Share(&function);
  std::vector<Value> results;
  for (const Value& result : function.results()) results.push_back(*map.Find(result));
  return Function::Create(function.name(), {function.parameters().begin(), function.parameters().end()},
                          std::move(results), {function.parameter_infos().begin(), function.parameter_infos().end()});
}

}  // namespace

Ref<const Node> CopyNode(const Node& node, Values operands, std::span<const Ref<const Function>> regions) {
  std::unique_ptr<const Regions> owned;
  if (!regions.empty()) owned.reset(new Regions{{regions.begin(), regions.end()}});
  std::unique_ptr<const NodeExtras> extras;
  if (node.extras() != nullptr) extras = std::make_unique<const NodeExtras>(*node.extras());
  return Node::Create(node.op(), std::move(operands), node.attrs(), Types(node.results().begin(), node.results().end()),
                      std::move(owned), node.location(), std::move(extras));
}

Ref<const Node> WithOperands(const Node& node, const Values& operands, std::span<const Ref<const Function>> regions) {
  const auto old_operands = node.operands();
  const auto old_regions = node.regions();
  if (std::equal(operands.begin(), operands.end(), old_operands.begin(), old_operands.end()) &&
      std::equal(regions.begin(), regions.end(), old_regions.begin(), old_regions.end())) {
    return Ref<const Node>::Share(&node);
  }
  return CopyNode(node, operands, regions);
}

namespace {

// Copies what `map` does not bind yet.
void CopyNodes(const Function& function, ValueMap& map) {
  for (const Node* node : function.nodes()) {
    if (map.Find({Ref<const Node>::Share(node), 0}) != nullptr) continue;
    Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? *map.Find(operand) : Value());
    std::vector<Ref<const Function>> regions;
    for (const Ref<const Function>& region : node->regions()) regions.push_back(CopyFunction(*region));
    const Ref<const Node> copy = CopyNode(*node, std::move(operands), regions);
    for (uint32_t i = 0; i < node->results().size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, {copy, i});
  }
}

}  // namespace

Values Inline(const Function& function, std::span<const Value> arguments) {
  ValueMap map;
  map.reserve(function.nodes().size());
  for (size_t i = 0; i < arguments.size(); ++i) map.Bind(function.parameters()[i], arguments[i]);
  CopyNodes(function, map);
  Values results;
  for (const Value& result : function.results()) results.push_back(*map.Find(result));
  return results;
}

Ref<const Function> CopyFunction(const Function& function) {
  ValueMap map;
  map.reserve(function.nodes().size());
  CopyNodes(function, map);
  std::vector<Value> parameters, results;
  for (const Value& parameter : function.parameters()) parameters.push_back(*map.Find(parameter));
  for (const Value& result : function.results()) results.push_back(*map.Find(result));
  return Function::Create(function.name(), std::move(parameters), std::move(results),
                          {function.parameter_infos().begin(), function.parameter_infos().end()});
}

absl::StatusOr<Ref<const Function>> Rewrite(const Function& function, RewriteRule rule) {
  Rewritten known;
  return RewriteAt(function, rule, 0, known);
}

absl::StatusOr<Module> Rewrite(const Module& module, RewriteRule rule) {
  Module result = module;
  for (Ref<const Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, Rewrite(*function, rule));
  }
  return result;
}

}  // namespace weft::ir
