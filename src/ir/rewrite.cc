// The rebuilding loop.
#include "src/ir/rewrite.h"

#include <algorithm>

#include "src/ir/text.h"

namespace weft::ir {
namespace {

absl::StatusOr<Ref<const Function>> RewriteAt(const Function& function, RewriteRule rule, int depth) {
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
      WEFT_ASSIGN_OR_RETURN(region, RewriteAt(*region, rule, depth + 1));
    }
    b.set_location(node->location());
    Values results = rule(RewriteCall{b, *node, operands, regions});
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

Ref<const Function> CopyFunction(const Function& function) {
  ValueMap map;
  map.reserve(function.nodes().size());
  for (const Node* node : function.nodes()) {
    Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? *map.Find(operand) : Value());
    std::vector<Ref<const Function>> regions;
    for (const Ref<const Function>& region : node->regions()) regions.push_back(CopyFunction(*region));
    const Ref<const Node> copy = CopyNode(*node, std::move(operands), regions);
    for (uint32_t i = 0; i < node->results().size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, {copy, i});
  }
  std::vector<Value> parameters, results;
  for (const Value& parameter : function.parameters()) parameters.push_back(*map.Find(parameter));
  for (const Value& result : function.results()) results.push_back(*map.Find(result));
  return Function::Create(function.name(), std::move(parameters), std::move(results),
                          {function.parameter_infos().begin(), function.parameter_infos().end()});
}

absl::StatusOr<Ref<const Function>> Rewrite(const Function& function, RewriteRule rule) {
  return RewriteAt(function, rule, 0);
}

absl::StatusOr<Module> Rewrite(const Module& module, RewriteRule rule) {
  Module result = module;
  for (Ref<const Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, Rewrite(*function, rule));
  }
  return result;
}

}  // namespace weft::ir
