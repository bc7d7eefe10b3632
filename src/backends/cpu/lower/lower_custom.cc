// Custom operations: an entry that calls the function by its name, with the buffers where they lie.
#include "src/backends/cpu/lower/lowering.h"
#include "src/backends/custom_call/custom_call.h"
#include "src/ops/custom/custom_call.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;
using Role = ops::CustomParameter::Role;

absl::Status LowerCustom(Lowering& lowering, const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const ops::CustomSignature signature, ops::CustomSignatureOf(node));
  std::vector<const ir::Type*> types;
  std::vector<StorageId> reads, writes;
  for (const Value& operand : node.operands()) {
    if (!operand) break;
    types.push_back(&operand.type());
    reads.push_back(lowering.Of(operand));
  }
  WEFT_ASSIGN_OR_RETURN(const ops::CustomSignature::Sizes sizes, signature.SizesFor(types, node.results()));
  std::vector<int64_t> written;
  for (uint32_t r = 0; r < node.results().size(); ++r) {
    writes.push_back(lowering.Define({Ref<const Node>::Share(&node), r}));
    written.push_back(node.results()[r].bytes());
  }
  size_t operand = 0, result = signature.returns == ops::CustomReturn::kResult ? 1 : 0;
  for (const ops::CustomParameter& p : signature.parameters) {
    if (p.role == Role::kInOut) {
      lowering.Copy(written[result], reads[operand], writes[result]);
      reads[operand] = writes[result];
    }
    if (p.role == Role::kInput || p.role == Role::kInputValue || p.role == Role::kInOut) ++operand;
    if (p.role == Role::kResult || p.role == Role::kInOut) ++result;
  }
  const bool elements = signature.kind == ops::CustomKind::kElements;
  for (const int64_t bytes : sizes.scratch_bytes) {
    if (elements) break;  // an element's is the call's own
    writes.push_back(lowering.Temporary(bytes));
    written.push_back(bytes);
  }
  const int64_t count = elements ? node.operands()[0].type().count() : 0;
  // The highest cost there is: a caller's code never runs on a thread that called us for something else.
  lowering.Host(custom::CustomKernelName(ops::CustomTarget(node), signature), reads, writes,
                custom::EncodeCustom({count, written, sizes.numbers}), static_cast<double>(kMostCost));
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {{&ops::kOp_custom_call, LowerCustom}};

}  // namespace

std::span<const OpRule> CustomRules() { return kRules; }

}  // namespace weft::cpu
