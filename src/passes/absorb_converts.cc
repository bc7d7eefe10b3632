// Products of f16 and bf16 that are computed in f32, and of i8, u8 and i16 in i32: dot_general and convolution read the short factors
// themselves and keep the wider sums (their dtype), so that no widened copy of a factor goes through memory. Exact: the factors are
// the same numbers.
// A result that is only rounded back is rounded by the product.
#include "absl/container/flat_hash_map.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/passes/passes.h"
#include "src/passes/products.h"

namespace weft::passes {
namespace {

using ir::Node;
using Uses = absl::flat_hash_map<const Node*, int>;

// The attribute that holds a product's type; -1 for what is none, or has attributes that a new node would lose.
int DTypeAttr(const Node& node) { return node.extras() == nullptr ? ProductDType(node.op()) : -1; }

ir::Values TakeFactors(const ir::RewriteCall& call, int dtype) {
  ir::Values factors;
  for (const ir::Value& factor : call.operands) {
    if (&factor.node->op() != &ops::kOp_convert || !IsPaired(factor.node->operands()[0].dtype(), factor.dtype())) {
      return {};
    }
    factors.push_back(factor.node->operands()[0]);
  }
  if (factors[0].dtype() != factors[1].dtype()) return {};
  ir::Attrs attrs = call.node.attrs();
  attrs.set(dtype, call.node.type().dtype);
  return {call.b.Emit(call.node.op(), std::move(factors), std::move(attrs))};
}

// Moves a rounding into the product before it, where nobody else uses the product.
ir::Values RoundInside(const ir::RewriteCall& call, const Uses& uses) {
  const Node& product = *call.operands[0].node;
  const int dtype = DTypeAttr(product);
  const DType to = call.node.type().dtype;
  if (dtype < 0 || product.type().dtype != DType::kF32 || product.operands()[0].dtype() != to) return {};
  if (uses.at(call.node.operands()[0].node.get()) != 1) return {};
  ir::Attrs attrs = product.attrs();
  attrs.set(dtype, to);
  return {call.b.Emit(product.op(), {product.operands()[0], product.operands()[1]}, std::move(attrs))};
}

absl::StatusOr<Ref<const ir::Function>> AbsorbIn(const ir::Function& function) {
  Uses uses;
  for (const Node* node : function.nodes()) {
    for (const ir::Value& operand : node->operands()) {
      if (operand && DTypeAttr(*operand.node) >= 0) ++uses[operand.node.get()];
    }
  }
  for (const ir::Value& result : function.results()) ++uses[result.node.get()];
  return ir::Rewrite(function, [&](const ir::RewriteCall& call) -> ir::Values {
    if (const int dtype = DTypeAttr(call.node); dtype >= 0) return TakeFactors(call, dtype);
    // Regions' nodes are not counted: they keep their converts.
    const bool narrows = &call.node.op() == &ops::kOp_convert && IsHalf(call.node.type().dtype);
    if (narrows && uses.contains(call.node.operands()[0].node.get())) return RoundInside(call, uses);
    return {};
  });
}

}  // namespace

absl::StatusOr<ir::Module> AbsorbConverts(const ir::Module& module, const PipelineOptions&) {
  ir::Module result = module;
  for (Ref<const ir::Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, AbsorbIn(*function));
  }
  return result;
}

}  // namespace weft::passes
