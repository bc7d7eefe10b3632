// Copies the trace's nodes into the entry function of a module.
#include "src/compiler/lower.h"

#include "src/compiler/tidy_captures.h"
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ir/verify.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::compiler {

ir::Module BuildModule(const Trace& trace) {
  std::vector<ir::Value> parameters;
  std::vector<ir::ParameterInfo> infos;
  uint32_t word = 0;
  for (const Trace::Argument& argument : trace.arguments) {
    parameters.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {argument.type()}), 0});
    ir::ParameterInfo info;
    if (argument.words > 0) {
      info.role = ir::ParameterInfo::Role::kWords;
      info.word = word;
      word += argument.words;
    }
    info.donated_to = argument.donated_to;
    infos.push_back(info);
  }
  std::vector<ir::Value> values;
  values.reserve(trace.values);
  auto resolve = [&](Trace::Reference reference) -> ir::Value {
    if (reference == Trace::kAbsent) return {};
    const uint32_t index = Trace::IndexOf(reference);
    return Trace::IsArgument(reference) ? parameters[index] : values[index];
  };
  // Passes mark what they walk: the module shares no node with the recording.
  ir::FunctionCopier copier;
  std::vector<Ref<const ir::Function>> regions;
  const Trace::Reference* operand = trace.operands.data();
  for (const ir::Node* node : trace.nodes) {
    ir::Values operands;
    for (size_t i = 0; i < node->operands().size(); ++i) operands.push_back(resolve(*operand++));
    regions.clear();
    for (const Ref<const ir::Function>& region : node->regions()) regions.push_back(copier.Copy(*region));
    Ref<const ir::Node> copy = ir::CopyNode(*node, std::move(operands), regions);
    for (uint32_t i = 0; i < node->results().size(); ++i) values.push_back({copy, i});
  }
  std::vector<ir::Value> results;
  for (Trace::Reference output : trace.outputs) results.push_back(resolve(output));
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", std::move(parameters), std::move(results), std::move(infos)));
  module.argument_words = trace.words;
  module.participants = trace.participants;
  return module;
}

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
    trace.words += trace.arguments.back().words;
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

absl::StatusOr<ir::Module> StableHloModule(const ir::Module& module) {
  const passes::PipelineOptions named = {.claims = [](const ir::Node& node) { return node.op().stablehlo != nullptr; }};
  WEFT_ASSIGN_OR_RETURN(const ir::Module expanded, passes::ExpandComposites(module, named));
  return TidyCaptures(expanded);
}

absl::StatusOr<std::string> StableHloText(const ir::Module& module, std::string_view precision, bool locations) {
  WEFT_ASSIGN_OR_RETURN(const ir::Module exported, StableHloModule(module));
  return ir::ToStableHlo(exported, {.locations = locations, .precision = precision});
}

}  // namespace weft::compiler
