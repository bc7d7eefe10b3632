// Finding and ordering the nodes of a function.
#include "src/ir/function.h"
#include "src/runtime/hash_map.h"

#include <algorithm>

namespace weft::ir {

std::vector<const Node*> Reachable(std::span<const Value> values, bool (*stop)(const Node&)) {
  const Walk walk;
  std::vector<const Node*> found;
  auto visit = [&](const Value& value) {
    if (value && walk.Mark(*value.node, 0)) found.push_back(value.node.get());
  };
  for (const Value& value : values) visit(value);
  for (size_t i = 0; i < found.size(); ++i) {
    const Node* node = found[i];
    if (stop != nullptr && stop(*node)) continue;
    for (const Value& operand : node->operands()) visit(operand);
  }
  std::sort(found.begin(), found.end(), [](const Node* a, const Node* b) { return a->id() < b->id(); });
  return found;
}

Ref<const Function> Function::Create(std::string name, std::vector<Value> parameters, std::vector<Value> results,
                                     std::vector<ParameterInfo> infos) {
  Function* function = new Function();
  function->name_ = std::move(name);
  function->parameters_ = std::move(parameters);
  function->infos_ = std::move(infos);
  function->infos_.resize(function->parameters_.size());
  function->results_ = std::move(results);
  HashSet<const Node*> parameter_nodes;
  for (const Value& parameter : function->parameters_) {
    parameter_nodes.insert(parameter.node.get());
    function->nodes_.push_back(parameter.node.get());
  }
  for (const Node* node : Reachable(function->results_)) {
    if (!parameter_nodes.contains(node)) function->nodes_.push_back(node);
    for (const Ref<const Function>& region : node->regions()) {
      if (region != nullptr) function->depth_ = std::max(function->depth_, region->depth() + 1);
    }
  }
  return Ref<const Function>(function);
}

}  // namespace weft::ir
