// See reducer_read.h.
#include "src/ops/reducer_read.h"

#include "src/ops/scalar_function.h"

namespace weft::ops {
namespace {

const ir::OpDef* const kCombine[] = {&kOp_add, &kOp_mul, &kOp_maximum, &kOp_minimum, &kOp_bitwise_and, &kOp_bitwise_or};

}  // namespace

std::optional<Reducer> ReducerOf(const ir::Function& body, size_t i, size_t n) {
  if (body.parameters().size() != 2 * n || body.results().size() != n) return {};
  const ir::Value& result = body.results()[i];
  const auto operands = result.node->operands();
  if (operands.size() != 2) return {};
  const ir::Value &x = body.parameters()[i], &y = body.parameters()[n + i];
  const bool both = (operands[0] == x && operands[1] == y) || (operands[0] == y && operands[1] == x);
  if (!both || !(x.type() == y.type()) || !x.dims().empty()) return {};
  for (size_t k = 0; k < std::size(kCombine); ++k) {
    if (&result.node->op() == kCombine[k]) return static_cast<Reducer>(k);
  }
  return {};
}

ir::Values ReadByBody(ir::StableHloOp& op, const ir::OpDef& by) {
  return CallAll(op.b, by, op.OperandsAndCaptures(), op.SchemaAttrs(by), op.Functions());
}

ir::Value StartFrom(ir::Builder& b, Reducer reducer, const ir::Value& init, ir::Value reduced) {
  if (IsNeutral(init, reducer)) return reduced;
  return Call(b, *kCombine[static_cast<size_t>(reducer)], {std::move(reduced), init});
}

}  // namespace weft::ops
