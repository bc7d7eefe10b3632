// See host_call.h. The same call as a launch list makes, with buffers of its own: operands, results, scratch.
#include "src/backends/custom_call/host_call.h"

#include <algorithm>
#include <vector>

#include "src/backends/custom_call/custom_call.h"
#include "src/ops/custom/custom_call.h"

namespace weft::custom {
namespace {

using Role = ops::CustomParameter::Role;

// Puts each `inout` operand's value into its result, which takes the operand's place in the call.
void CopyInOuts(const ops::CustomSignature& signature, std::span<const HostTensor* const> operands,
                std::span<HostTensor> results, std::vector<void*>* reads) {
  size_t operand = 0, result = signature.returns == ops::CustomReturn::kResult ? 1 : 0;
  for (const ops::CustomParameter& p : signature.parameters) {
    if (p.role == Role::kInOut) {
      std::ranges::copy(operands[operand]->bytes(), results[result].mutable_bytes().begin());
      (*reads)[operand] = results[result].mutable_bytes().data();
    }
    if (p.role == Role::kInput || p.role == Role::kInputValue || p.role == Role::kInOut) ++operand;
    if (p.role == Role::kResult || p.role == Role::kInOut) ++result;
  }
}

}  // namespace

absl::Status CallOnHost(const ir::Attrs& attrs, std::span<const HostTensor* const> operands,
                        std::span<HostTensor> results, const std::shared_ptr<ops::CustomFunctions>& registered) {
  WEFT_ASSIGN_OR_RETURN(const ops::CustomSignature signature, ops::CustomSignatureOf(attrs));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const CustomCall> call,
                        CustomCall::Find(CustomKernelName(ops::CustomTarget(attrs), signature), registered));
  const auto end = std::ranges::find(operands, nullptr);
  operands = operands.first(static_cast<size_t>(end - operands.begin()));
  std::vector<ir::Type> types, given;
  std::vector<const ir::Type*> read;
  std::vector<void*> buffers;
  for (const HostTensor* operand : operands) {
    types.push_back(ir::Type::Tensor(operand->dtype(), operand->dims()));
    buffers.push_back(const_cast<std::byte*>(operand->bytes().data()));  // the function has promised not to write there
  }
  for (const ir::Type& type : types) read.push_back(&type);
  for (const HostTensor& result : results) given.push_back(ir::Type::Tensor(result.dtype(), result.dims()));
  WEFT_ASSIGN_OR_RETURN(const ops::CustomSignature::Sizes sizes, signature.SizesFor(read, given));
  CopyInOuts(signature, operands, results, &buffers);
  std::vector<int64_t> written;
  for (HostTensor& result : results) {
    buffers.push_back(result.mutable_bytes().data());
    written.push_back(static_cast<int64_t>(result.bytes().size()));
  }
  const bool elements = signature.kind == ops::CustomKind::kElements;
  std::vector<HostTensor> scratch;
  for (const int64_t bytes : sizes.scratch_bytes) {
    if (elements) break;  // an element's is the call's own
    scratch.emplace_back(DType::kU8, Dims{bytes});
    buffers.push_back(scratch.back().mutable_bytes().data());
    written.push_back(bytes);
  }
  ThreadPool alone(1);  // has no thread of its own
  return call->Run(buffers, EncodeCustom({elements ? operands[0]->count() : 0, written, sizes.numbers}), alone);
}

}  // namespace weft::custom
