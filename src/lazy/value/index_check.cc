// See index_check.h.
#include "src/lazy/value/index_check.h"

#include "src/ir/builder.h"
#include "src/lazy/value/data.h"
#include "src/lazy/value/read_as.h"
#include "src/runtime/host_tensor.h"

namespace weft::lazy {
namespace {

absl::Status ReadValue(const Data& data, HostTensor* to) {
  if (data.word_count == 0) return ReadAs(*data.whole(), to->dtype(), 0, to->mutable_bytes());
  ReadWordsAs(data, ir::Type::Tensor(to->dtype(), to->dims()), to->dtype(), 0, to->mutable_bytes());
  return absl::OkStatus();
}

}  // namespace

IndexCheck::IndexCheck(const ir::OpDef& op, std::span<const ir::Value> operands, ir::Attrs attrs)
    : op_(op), operands_(operands), attrs_(std::move(attrs)) {
  for (const ir::Value& operand : operands) {
    const Data* data = operand ? DataOf(operand) : nullptr;
    if (data == nullptr || data->shards().empty() || data->split()) continue;
    held_.push_back(data->whole());
    held_.back()->Hold();
  }
}

IndexCheck::~IndexCheck() {
  for (const Ref<Buffer>& buffer : held_) buffer->Unhold();
}

absl::Status IndexCheck::Run() {
  ir::Types results;
  WEFT_RETURN_IF_ERROR(ir::CheckCall(op_, operands_, attrs_, &results));  // fills defaults in
  std::vector<const ir::Type*> types;
  std::vector<HostTensor> values(operands_.size());
  std::vector<const HostTensor*> given;
  for (size_t i = 0; i < operands_.size(); ++i) {
    types.push_back(operands_[i] ? &operands_[i].type() : nullptr);
    given.push_back(nullptr);
    const Data* data = operands_[i] && IsInteger(operands_[i].dtype()) ? DataOf(operands_[i]) : nullptr;
    if (data == nullptr || data->split()) continue;
    values[i] = HostTensor(operands_[i].dtype(), operands_[i].type().dims);
    WEFT_RETURN_IF_ERROR(ReadValue(*data, &values[i]));
    given.back() = &values[i];
  }
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i] && IsInteger(operands_[i].dtype()) && given[i] == nullptr) return absl::OkStatus();
  }
  return ir::NameCall(op_, operands_, op_.indices(ir::IndexCall{op_, types, given, attrs_}));
}

}  // namespace weft::lazy
