// Transposes around dot_general. Before it: batch and contracting dimensions may lie anywhere in an operand, so a
// transpose is only another numbering; the result takes the free dimensions in the operand's order, so the transpose
// goes only if it keeps that. After it: exchanging the operands exchanges their free dimensions in the result, which is
// what the gradients of weights ask for (a transpose of 784x512 floats costs a tenth of the product that makes it).
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Ints;
using ir::Node;
using Uses = absl::flat_hash_map<const Node*, int>;

// In the schema the attribute of rhs follows that of lhs.
constexpr auto kLhsBatching = ops::DotGeneralAttrs::kLhsBatchingDimensions;
constexpr auto kRhsBatching = ops::DotGeneralAttrs::kRhsBatchingDimensions;
constexpr auto kLhsContracting = ops::DotGeneralAttrs::kLhsContractingDimensions;
constexpr auto kRhsContracting = ops::DotGeneralAttrs::kRhsContractingDimensions;
static_assert(kRhsBatching == kLhsBatching + 1 && kRhsContracting == kLhsContracting + 1);

// Positions of x's dimensions in the transpose's operand; false if the free ones change their order.
bool Renumber(const Ints& permutation, Ints& batch, Ints& contracting) {
  int64_t last = -1;
  for (size_t d = 0; d < permutation.size(); ++d) {
    const auto at = static_cast<int64_t>(d);
    if (std::ranges::count(batch, at) != 0 || std::ranges::count(contracting, at) != 0) continue;
    if (permutation[d] < last) return false;
    last = permutation[d];
  }
  for (int64_t& d : batch) d = permutation[d];
  for (int64_t& d : contracting) d = permutation[d];
  return true;
}

ir::Values TakeOperandTransposes(const ir::RewriteCall& call) {
  ir::Attrs attrs = call.node.attrs();
  ir::Values operands = call.operands;
  bool changed = false;
  for (size_t side = 0; side < 2; ++side) {
    if (&operands[side].node->op() != &ops::kOp_transpose) continue;
    Ints batch = attrs.IntList(kLhsBatching + side);
    Ints contracting = attrs.IntList(kLhsContracting + side);
    if (!Renumber(ops::TransposeAttrs{operands[side].node->attrs()}.permutation(), batch, contracting)) continue;
    attrs.set(kLhsBatching + side, std::move(batch));
    attrs.set(kLhsContracting + side, std::move(contracting));
    operands[side] = ir::Value(operands[side].node->operands()[0]);
    changed = true;
  }
  if (!changed) return {};
  return {call.b.Emit(call.node.op(), std::move(operands), std::move(attrs))};
}

// Turns a transpose of a dot that nobody else uses into a dot with its factors exchanged.
ir::Values ExchangeFactors(const ir::RewriteCall& call, const Uses& uses) {
  const Node& dot = *call.operands[0].node;
  const auto used = uses.find(call.node.operands()[0].node.get());
  if (&dot.op() != &ops::kOp_dot_general || dot.extras() != nullptr || used == uses.end() || used->second != 1)
    return {};
  const ir::Attrs& a = dot.attrs();
  const auto batch = static_cast<int64_t>(a.IntList(kLhsBatching).size());
  const auto lhs_free = static_cast<int64_t>(dot.operands()[0].type().rank()) - batch -
                        static_cast<int64_t>(a.IntList(kLhsContracting).size());
  const auto rank = static_cast<int64_t>(dot.type().rank());
  Ints exchanged = ops::Axes(batch);
  for (int64_t d = batch + lhs_free; d < rank; ++d) exchanged.push_back(d);
  for (int64_t d = batch; d < batch + lhs_free; ++d) exchanged.push_back(d);
  if (ops::TransposeAttrs{call.node.attrs()}.permutation() != exchanged) return {};
  ir::Attrs attrs = a;
  attrs.set(kLhsBatching, a.at(kRhsBatching));
  attrs.set(kRhsBatching, a.at(kLhsBatching));
  attrs.set(kLhsContracting, a.at(kRhsContracting));
  attrs.set(kRhsContracting, a.at(kLhsContracting));
  return {call.b.Emit(dot.op(), {dot.operands()[1], dot.operands()[0]}, std::move(attrs))};
}

absl::StatusOr<Ref<const ir::Function>> CanonicalizeIn(const ir::Function& function) {
  Uses uses;
  for (const ir::Function* each : ir::CalleesFirst(function)) {
    for (const Node* node : each->nodes()) {
      for (const ir::Value& operand : node->operands()) {
        if (operand && &operand.node->op() == &ops::kOp_dot_general) ++uses[operand.node.get()];
      }
    }
    for (const ir::Value& result : each->results()) ++uses[result.node.get()];
  }
  return ir::Rewrite(function, [&](const ir::RewriteCall& call) -> ir::Values {
    if (call.node.extras() != nullptr) return {};
    if (&call.node.op() == &ops::kOp_dot_general) return TakeOperandTransposes(call);
    if (&call.node.op() == &ops::kOp_transpose) return ExchangeFactors(call, uses);
    return {};
  });
}

}  // namespace

absl::StatusOr<ir::Module> CanonicalizeDots(const ir::Module& module, const PipelineOptions&) {
  ir::Module result = module;
  for (Ref<const ir::Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, CanonicalizeIn(*function));
  }
  return result;
}

}  // namespace weft::passes
