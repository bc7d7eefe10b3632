// See tidy_captures.h.
#include "src/compiler/tidy_captures.h"

#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/registry.h"

namespace weft::compiler {
namespace {

using ir::Function;
using ir::Value;

// The function with its first `inputs` parameters and the captures that it uses; their operands go to `operands`.
Ref<const Function> Tidy(const Ref<const Function>& function, size_t inputs, std::span<const Value> captures,
                         ir::Values* operands) {
  const std::span<const Value> parameters = function->parameters();
  std::vector<Value> used(parameters.begin(), parameters.begin() + static_cast<ptrdiff_t>(inputs));
  const auto use = [&](const Value& value) {
    const auto at = std::find(parameters.begin() + static_cast<ptrdiff_t>(inputs), parameters.end(), value);
    if (at == parameters.end() || std::ranges::find(used, value) != used.end()) return;
    used.push_back(value);
    operands->push_back(captures[static_cast<size_t>(at - parameters.begin()) - inputs]);
  };
  for (const ir::Node* node : function->nodes()) {
    for (const Value& operand : node->operands()) use(operand);
  }
  for (const Value& result : function->results()) use(result);
  if (std::ranges::equal(used, parameters)) return function;
  const std::span<const Value> results = function->results();
  return Function::Create(function->name(), std::move(used), {results.begin(), results.end()});
}

ir::Values Tidied(const ir::RewriteCall& call) {
  const bool loops = &call.node.op() == &ops::kOp_while;
  if (!loops && &call.node.op() != &ops::kOp_case && &call.node.op() != &ops::kOp_if) return {};
  const size_t inputs = loops ? call.regions[1]->results().size() : 0, first = loops ? inputs : 1;
  std::span<const Value> captures = std::span(call.operands.data(), call.operands.size()).subspan(first);
  ir::Values operands(call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(first));
  std::vector<Ref<const Function>> regions;
  for (const Ref<const Function>& region : call.regions) {
    const size_t own = region->parameters().size() - inputs;
    regions.push_back(Tidy(region, inputs, captures.first(own), &operands));
    captures = captures.subspan(own);
  }
  if (std::ranges::equal(regions, call.regions)) return {};
  const Ref<const ir::Node> node = ir::WithOperands(call.node, operands, regions);
  ir::Values results;
  for (uint32_t i = 0; i < call.node.results().size(); ++i) results.push_back({node, i});
  return results;
}

}  // namespace

absl::StatusOr<ir::Module> TidyCaptures(const ir::Module& module) { return ir::Rewrite(module, Tidied); }

}  // namespace weft::compiler
