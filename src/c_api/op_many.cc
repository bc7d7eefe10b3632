// weft_op_apply_many: operations on one another's results, recorded all or not at all.
#include <algorithm>

#include "absl/strings/cord.h"
#include "src/c_api/context.h"
#include "src/c_api/op_call.h"
#include "weft.h"

namespace weft::c_api {
namespace {

inline constexpr std::string_view kPayloadCall = "weft.call";

// One entry of the caller's list, read.
struct OneCall {
  explicit OneCall(const ir::OpDef& op) : call(op) {}
  OpCall call;
  std::vector<lazy::Engine::Call::Earlier> earlier;
  size_t operands = 0;  // without absent ones at the end
  Device* device = nullptr;
  bool drop = false;
};

absl::Status AtCall(size_t i, const absl::Status& status) {
  const absl::Status named = WithText(status, absl::StrCat("weft_op_apply_many: calls[", i, "]: ", status.message()));
  return WithDetail(named, kPayloadCall, absl::StrCat(i));
}

absl::Status ReadInputs(const weft_op_call& said, size_t index, std::span<const OneCall> before, OneCall* part) {
  if (said.input_count > 0 && said.inputs == nullptr) return NullArgument("inputs");
  WEFT_RETURN_IF_ERROR(CheckedLength("inputs", said.input_count, kMostEntries));
  for (size_t k = 0; k < said.input_count; ++k) {
    const weft_op_input& input = said.inputs[k];
    part->call.Optional(input.is_result != 0 ? nullptr : input.tensor);
    if (input.is_result == 0) {
      if (input.tensor != nullptr) part->operands = k + 1;
      continue;
    }
    if (input.tensor != nullptr) return UserError("inputs[", k, "] is both a tensor and a result; tensor must be NULL");
    if (input.call >= index) {
      return UserError("inputs[", k, "] is a result of calls[", input.call, "], which is not before calls[", index,
                       "]");
    }
    const ir::OpDef& op = before[input.call].call.op();
    if (input.result >= op.results.size()) {
      return UserError("inputs[", k, "] is result ", input.result, " of calls[", input.call, "]; ", op.c_name, " has ",
                       op.results.size());
    }
    part->earlier.push_back({k, input.call, input.result});
    part->operands = k + 1;
  }
  return absl::OkStatus();
}

absl::Status ReadCall(const weft_op_call& said, lazy::Engine& engine, std::vector<OneCall>* parts) {
  WEFT_ASSIGN_OR_RETURN(const ir::OpDef* op, ExportedOp(said.name, said.name_length));
  OneCall part(*op);
  WEFT_RETURN_IF_ERROR(ReadInputs(said, parts->size(), *parts, &part));
  WEFT_RETURN_IF_ERROR(SetAttrs(part.call, said.attrs, said.attr_count));
  if (said.device != nullptr) {
    WEFT_ASSIGN_OR_RETURN(part.device, DeviceOr(said.device, engine));
  }
  if (said.reserved != 0) return UserError("reserved is ", said.reserved, "; it must be 0");
  part.drop = said.drop != 0;
  parts->push_back(std::move(part));
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_op_apply_many(weft_context* ctx, const weft_op_call* calls, size_t call_count, weft_tensor** outputs,
                               weft_tensor_info* infos, size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (call_count > 0) WEFT_NOT_NULL(calls);
    if (capacity > 0) WEFT_NOT_NULL(outputs);
    WEFT_RETURN_IF_ERROR(CheckedLength("calls", call_count, 1 << 20));
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    lazy::Engine& engine = context->engine();
    std::vector<OneCall> parts;
    parts.reserve(call_count);
    size_t wanted = 0;
    for (size_t i = 0; i < call_count; ++i) {
      if (absl::Status status = ReadCall(calls[i], engine, &parts); !status.ok()) return AtCall(i, status);
      if (!parts[i].drop) wanted += parts[i].call.op().results.size();
    }
    if (wanted > capacity) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "the calls give ", wanted, " results out; capacity is ",
                         capacity);
    }
    std::vector<lazy::Engine::Call> recorded(call_count);
    for (size_t i = 0; i < call_count; ++i) {
      absl::StatusOr<ir::Attrs> attrs = parts[i].call.TakeAttrs();
      if (!attrs.ok()) return AtCall(i, attrs.status());
      recorded[i].op = &parts[i].call.op();
      recorded[i].operands = parts[i].call.operands().first(parts[i].operands);
      recorded[i].earlier = parts[i].earlier;
      recorded[i].attrs = *std::move(attrs);
      recorded[i].device = parts[i].device;
      recorded[i].drop = parts[i].drop && parts[i].device == nullptr;  // else its place is looked at
    }
    size_t failed = 0;
    const auto find = [&]() -> absl::Status {
      for (; failed < call_count; ++failed) {
        WEFT_RETURN_IF_ERROR(parts[failed].call.FindOperands(parts[failed].operands, engine));
      }
      return absl::OkStatus();
    };
    const absl::Status status = engine.RecordMany(recorded, find, CurrentLocation(engine), &failed, context->frame());
    if (!status.ok()) return AtCall(failed, status);
    std::vector<Ref<lazy::Tensor>> results;
    std::vector<weft_tensor_info> described;
    for (size_t i = 0; i < call_count; ++i) {
      const absl::Status place = CheckDevice(recorded[i].results, parts[i].device, *recorded[i].op);
      if (!place.ok()) return AtCall(i, place);
      if (parts[i].drop) continue;
      for (Ref<lazy::Tensor>& result : recorded[i].results) {
        if (infos != nullptr) Describe(*result, &described.emplace_back());
        results.push_back(std::move(result));
      }
    }
    std::vector<weft_tensor*> made;
    WEFT_RETURN_IF_ERROR(MakeTensors(results, &made));
    std::copy(made.begin(), made.end(), outputs);
    std::copy(described.begin(), described.end(), infos);
    *out_count = made.size();
    return absl::OkStatus();
  });
}

}  // extern "C"
