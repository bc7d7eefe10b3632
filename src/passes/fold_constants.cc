// Operations of literals only, computed while compiling.
#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

// Larger literals would cost more memory and code than the operation costs time.
constexpr int64_t kMaxElements = 256;

// The reference computes in double and rounds once. That gives the bits every backend gives for operations that say they
// are exact, and for the four of IEEE (double holds more than twice the digits of f32, so rounding twice is harmless).
// exp and its like may differ in the last digit: a program must not change because a literal was folded.
bool IsExact(const ir::OpDef& op) {
  return op.tolerance.f32 == 0 || &op == &ops::kOp_add || &op == &ops::kOp_sub || &op == &ops::kOp_mul ||
         &op == &ops::kOp_div;
}

}  // namespace

absl::StatusOr<ir::Module> FoldConstants(const ir::Module& module, const PipelineOptions&) {
  absl::Status status;
  auto rule = [&](const ir::RewriteCall& call) -> ir::Values {
    const ir::Node& node = call.node;
    const ir::OpDef& op = node.op();
    if (op.reference == nullptr || op.random || op.opaque || !IsExact(op) || call.operands.empty() ||
        !call.regions.empty() || node.extras() != nullptr || !status.ok()) {
      return {};
    }
    std::vector<const HostTensor*> operands;
    int64_t most = 0;
    for (const ir::Value& operand : call.operands) {
      if (operand && &operand.node->op() != &ops::kOp_constant) return {};
      operands.push_back(operand ? &ops::ConstantAttrs{operand.node->attrs()}.value() : nullptr);
      if (operand) most = std::max(most, operand.type().count());
    }
    operands.resize(std::max(operands.size(), op.operands.size()));
    std::vector<HostTensor> tensors;
    for (const ir::Type& type : node.results()) {
      if (!type.is_tensor() || !IsComputable(type.dtype) || type.count() > kMaxElements) return {};
      // A repeated scalar says more to later passes than its copies.
      if (type.count() > most) return {};
      tensors.emplace_back(type.dtype, type.dims);
    }
    status = op.reference(ir::ReferenceCall{op, operands, node.attrs(), tensors});
    if (!status.ok()) return {};
    ir::Values results;
    for (HostTensor& tensor : tensors) results.push_back(ops::Constant(call.b, std::move(tensor)));
    return results;
  };
  WEFT_ASSIGN_OR_RETURN(ir::Module result, ir::Rewrite(module, rule));
  WEFT_RETURN_IF_ERROR(status);
  return result;
}

}  // namespace weft::passes
