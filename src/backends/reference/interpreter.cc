// The node loop, and the two ways to run one call.
#include "src/backends/reference/interpreter.h"

#include <algorithm>
#include <utility>

#include "src/backends/custom_call/host_call.h"
#include "src/ops/call.h"
#include "src/ops/control/counted.h"
#include "src/runtime/hash_map.h"

namespace weft::reference {
namespace {

using ir::Node;
using ir::Value;

thread_local const CancelScope* g_cancel = nullptr;
thread_local const CustomScope* g_custom = nullptr;

absl::StatusOr<std::vector<HostTensor>> RunUnlessCancelled(const ir::Function& region,
                                                           std::span<const HostTensor> arguments) {
  if (g_cancel != nullptr) WEFT_RETURN_IF_ERROR(g_cancel->Look());
  return Interpret(region, arguments);
}

ir::Value NewParameter(const ir::Type& type) { return {Node::Create(ops::kOp_parameter, {}, {}, {type}), 0}; }

// Expansions nest a few levels (cross_entropy, log_softmax, primitives), so the recursion is shallow.
absl::StatusOr<std::vector<HostTensor>> ByExpansion(const ir::OpDef& op, std::span<const HostTensor* const> operands,
                                                    const ir::Attrs& attrs, std::span<const ir::Type> types,
                                                    ir::RegionSpan regions) {
  std::vector<Value> parameters;
  std::vector<HostTensor> arguments;
  ir::Values values;
  for (const HostTensor* operand : operands) {
    if (operand == nullptr) {
      values.push_back({});
      continue;
    }
    values.push_back(NewParameter(ir::Type::Tensor(operand->dtype(), operand->dims())));
    parameters.push_back(values.back());
    arguments.push_back(*operand);
  }
  ir::Builder b;
  ir::Values results(types.size());
  WEFT_RETURN_IF_ERROR(
      ops::Expand(b, op, std::move(values), attrs, types, std::span(results.data(), results.size()), regions));
  WEFT_RETURN_IF_ERROR(b.status());
  const Ref<const ir::Function> body =
      ir::Function::Create(std::string(op.c_name), std::move(parameters), {results.begin(), results.end()});
  return Interpret(*body, arguments);
}

}  // namespace

CancelScope::CancelScope(const CancelToken& token) : token_(token), before_(std::exchange(g_cancel, this)) {}
CancelScope::~CancelScope() { g_cancel = before_; }

CustomScope::CustomScope(std::shared_ptr<ops::CustomFunctions> registered)
    : registered_(std::move(registered)), before_(std::exchange(g_custom, this)) {}
CustomScope::~CustomScope() { g_custom = before_; }

absl::StatusOr<std::vector<HostTensor>> InterpretCall(const ir::OpDef& op, std::span<const HostTensor* const> operands,
                                                      const ir::Attrs& attrs, std::span<const ir::Type> types,
                                                      ir::RegionSpan regions) {
  if (op.reference == nullptr) {
    if (op.expand != nullptr) return ByExpansion(op, operands, attrs, types, regions);
    return absl::UnimplementedError(absl::StrCat(op.c_name, ": the reference backend cannot run it"));
  }
  std::vector<HostTensor> results;
  for (const ir::Type& type : types) results.emplace_back(type.dtype, type.dims);
  if (&op == &ops::kOp_custom_call && g_custom != nullptr) {
    WEFT_RETURN_IF_ERROR(custom::CallOnHost(attrs, operands, results, g_custom->registered()));
    return results;
  }
  std::vector<const HostTensor*> all(operands.begin(), operands.end());
  all.resize(std::max(all.size(), op.operands.size()), nullptr);
  const bool endless = &op == &ops::kOp_while && !ops::EndsByItself(*regions[0], *regions[1]);
  const ir::RunRegionFn run = endless ? &RunUnlessCancelled : &Interpret;
  WEFT_RETURN_IF_ERROR(op.reference(ir::ReferenceCall{op, all, attrs, results, regions, run}));
  return results;
}

absl::StatusOr<std::vector<HostTensor>> Interpret(const ir::Function& function, std::span<const HostTensor> arguments) {
  if (arguments.size() != function.parameters().size()) {
    return InternalError(function.name(), " takes ", function.parameters().size(), " arguments, ", arguments.size(),
                         " given");
  }
  HashMap<const Node*, size_t> last_user;
  for (size_t i = 0; i < function.nodes().size(); ++i) {
    for (const Value& operand : function.nodes()[i]->operands()) {
      if (operand) last_user[operand.node.get()] = i;
    }
  }
  for (const Value& result : function.results()) last_user[result.node.get()] = function.nodes().size();

  HashMap<const Node*, std::vector<HostTensor>> values;
  for (size_t i = 0; i < arguments.size(); ++i) values[function.parameters()[i].node.get()] = {arguments[i]};
  for (size_t i = 0; i < function.nodes().size(); ++i) {
    const Node* node = function.nodes()[i];
    if (values.contains(node)) continue;  // a parameter
    std::vector<const HostTensor*> operands;
    for (const Value& operand : node->operands()) {
      operands.push_back(operand ? &values.at(operand.node.get())[operand.result] : nullptr);
    }
    absl::StatusOr<std::vector<HostTensor>> results;
    if (node->op().lowering == ir::Lowering::kStructural && node->regions().size() == 1) {  // a fusion: its body
      std::vector<HostTensor> copies;
      for (const HostTensor* operand : operands) copies.push_back(*operand);
      results = Interpret(*node->regions()[0], copies);
    } else {
      results = InterpretCall(node->op(), operands, node->attrs(), node->results(), node->regions());
    }
    if (!results.ok()) return std::move(results).status();
    values[node] = *std::move(results);
    for (const Value& operand : node->operands()) {
      if (operand && last_user[operand.node.get()] == i) values.erase(operand.node.get());
    }
  }
  std::vector<HostTensor> results;
  for (const Value& result : function.results()) results.push_back(values.at(result.node.get())[result.result]);
  return results;
}

}  // namespace weft::reference
