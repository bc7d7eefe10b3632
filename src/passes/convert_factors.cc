// Products whose result is of another type than their factors: sums happen in the result's type, and in none that is shorter than
// the factors'. Backends have products of few pairs of types (products.h); for all others the factors are converted before they are
// multiplied, and the sum behind it: what fits into the result neither wraps nor overflows on its way.
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/passes/passes.h"
#include "src/passes/products.h"

namespace weft::passes {
namespace {

// Integers wrap, so that what a shorter result cuts off may be cut off before. Only f64 holds most digits of their
// products.
DType SumType(DType factor, DType result) {
  if (!IsFloat(factor)) return IsFloat(result) ? DType::kF64 : result;
  return factor == DType::kF64 || result == DType::kF64 ? DType::kF64 : DType::kF32;
}

ir::Values ConvertedFactors(const ir::RewriteCall& call) {
  const int dtype = ProductDType(call.node.op());
  if (dtype < 0) return {};
  const DType factor = call.operands[0].dtype(), result = call.node.type().dtype;
  if (IsPaired(factor, result)) return {};
  const DType sum = SumType(factor, result), taken = IsPaired(factor, sum) ? factor : sum;
  ir::Values factors;
  for (const ir::Value& operand : call.operands) factors.push_back(ops::Convert(call.b, operand, taken));
  ir::Attrs attrs = call.node.attrs();
  attrs.set(dtype, {});
  if (taken != sum) attrs.set(dtype, sum);
  return {ops::Convert(call.b, call.b.Emit(call.node.op(), std::move(factors), std::move(attrs)), result)};
}

}  // namespace

absl::StatusOr<ir::Module> ConvertFactors(const ir::Module& module, const PipelineOptions&) {
  return ir::Rewrite(module, ConvertedFactors);
}

}  // namespace weft::passes
