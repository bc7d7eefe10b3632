// See function_difference.h.
#include "src/compiler/function_difference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/compiler/canonical.h"
#include "src/ir/rewrite.h"
#include "src/ir/verify.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::compiler {
namespace {

// The function as if it had been recorded and cut.
Trace TraceOf(const ir::Function& function) {
  Trace trace;
  HashMap<const ir::Node*, Trace::Reference> first;  // of a node's results
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    const ir::Value& parameter = function.parameters()[i];
    const ir::ParameterInfo& info = function.parameter_infos()[i];
    const bool words = info.role == ir::ParameterInfo::Role::kWords;
    first.try_emplace(parameter.node.get(), Trace::OfArgument(static_cast<uint32_t>(i)));
    trace.arguments.push_back({parameter.node.get(), parameter.result, words ? ir::WordsOf(parameter.type()) : 0,
                               words ? -1 : info.donated_to});
  }
  const auto reference = [&](const ir::Value& value) {
    return value ? first.at(value.node.get()) + 2 * value.result : Trace::kAbsent;
  };
  for (const ir::Node* node : function.nodes().subspan(function.parameters().size())) {
    trace.nodes.push_back(node);
    for (const ir::Value& operand : node->operands()) trace.operands.push_back(reference(operand));
    first.try_emplace(node, Trace::OfValue(trace.values));
    trace.values += static_cast<uint32_t>(node->results().size());
  }
  for (const ir::Value& result : function.results()) trace.outputs.push_back(reference(result));
  return trace;
}

// A function as comparisons want it.
struct Prepared {
  Ref<const ir::Function> function;
  Trace trace;
  Outline outline;
  std::string canonical;
};

absl::StatusOr<Prepared> Prepare(const Ref<const ir::Function>& function) {
  ir::Module module;
  module.functions.push_back(function);
  WEFT_ASSIGN_OR_RETURN(module, passes::InlineCalls(module, {}));
  // Functions that compute the same are one object from here on, with the positions of the first.
  Prepared made = {.function = ir::InternAll(module.main()), .trace = {}, .outline = {}, .canonical = {}};
  made.trace = TraceOf(*made.function);
  made.outline = OutlineOf(made.trace);
  const auto nodes = module.main().nodes().subspan(module.main().parameters().size());
  for (Outline::Node& node : made.outline.nodes) node.at = nodes[node.traced]->location();
  AppendCanonical(made.trace, &made.canonical);
  return made;
}

}  // namespace

absl::StatusOr<std::optional<FunctionDifference>> DifferenceOf(const Ref<const ir::Function>& before,
                                                               const Ref<const ir::Function>& now) {
  WEFT_ASSIGN_OR_RETURN(const Prepared was, Prepare(before));
  WEFT_ASSIGN_OR_RETURN(const Prepared is, Prepare(now));
  if (was.canonical == is.canonical) return std::nullopt;
  const std::optional<Difference> found = Compare(was.outline, is.outline);
  if (!found) {
    return FunctionDifference{
        .reason = Reason::kFirst,
        .text = absl::StrCat("less than half of the operations are the same (", was.outline.nodes.size(), " and ",
                             is.outline.nodes.size(), " nodes)"),
        .at = {}};
  }
  return FunctionDifference{.reason = found->reason,
                            .text = TextOf(*found, was.outline, was.canonical, is.outline, is.canonical),
                            .at = found->at};
}

}  // namespace weft::compiler
