// weft_while, weft_for, weft_scan, weft_if, weft_case: control flow out of functions. What a function captures becomes an operand behind the others.
#include <cmath>

#include "src/c_api/function_object.h"
#include "src/c_api/options.h"
#include "src/ops/control/draws.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// One call: its context, its functions, and its operands in the order in which the operation wants them.
struct ControlCall {
  Pin<Context> context;
  std::vector<Ref<const ir::Function>> functions;
  std::vector<Pin<FunctionObject>> pinned;
  std::vector<lazy::Tensor*> operands;
  TensorList given;        // keeps what the caller named
  Ref<lazy::Tensor> runs;  // of a while that draws: how often its body has run, 0
};

absl::Status Begin(weft_context* ctx, weft_tensor* const* tensors, size_t count, std::string_view parameter,
                   ControlCall* call) {
  WEFT_ASSIGN_OR_RETURN(call->context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(call->context->Usable());
  WEFT_RETURN_IF_ERROR(CheckedLength(parameter, count, kMostEntries));
  return GetTensors(tensors, count, parameter, &call->given);
}

absl::Status AddFunction(weft_function* function, size_t inputs, std::string_view parameter, ControlCall* call) {
  WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> found, GetFunction(function, *call->context, parameter));
  if (found->inputs() != inputs) {
    return UserError(parameter, ": the function @", found->name, " takes ", found->inputs(), " inputs; it gets ",
                     inputs);
  }
  call->functions.push_back(found->function);
  call->pinned.push_back(std::move(found));
  return absl::OkStatus();
}

void AddCaptures(const FunctionObject& function, ControlCall* call) {
  for (const Ref<lazy::Tensor>& capture : function.captures) call->operands.push_back(capture.get());
  if (function.draws) call->operands.push_back(nullptr);
}

// The operation may have more results than the caller sees.
absl::Status Run(const ir::OpDef& op, ir::Attrs attrs, const ControlCall& call, size_t seen, weft_tensor** outputs,
                 size_t capacity, size_t* out_count) {
  if (seen > capacity) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, op.c_name, ": there are ", seen, " results; capacity is ",
                       capacity);
  }
  lazy::Tensors results;
  WEFT_RETURN_IF_ERROR(call.context->engine().Record(op, call.operands, std::move(attrs),
                                                     CurrentLocation(call.context->engine()), &results,
                                                     call.context->where(), call.functions));
  results.resize(seen);
  return GiveOut(std::move(results), outputs, capacity, out_count);
}

// A while whose functions draw carries the number of its runs, behind what the caller does.
absl::Status NumberRuns(size_t carried, ControlCall* call) {
  const FunctionObject &condition = *call->pinned[0], &body = *call->pinned[1];
  if (carried == 0 || (!condition.draws && !body.draws)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(call->functions[0], ops::NumberedRun(*condition.function, carried, condition.draws, false));
  WEFT_ASSIGN_OR_RETURN(call->functions[1], ops::NumberedRun(*body.function, carried, body.draws, true));
  // In the frame where the loop is recorded: it is no capture.
  lazy::Where where(&call->given[0]->sharding().mesh());
  where.frame = call->context->frame();
  for (const lazy::Tensor* operand : call->operands) {
    if (operand != nullptr) where.frame = lazy::Deeper(where.frame, operand->frame()).value_or(where.frame);
  }
  WEFT_ASSIGN_OR_RETURN(
      call->runs, call->context->engine().ScalarInt(where, DType::kU64, 0, CurrentLocation(call->context->engine())));
  call->operands.insert(call->operands.begin() + static_cast<ptrdiff_t>(carried), call->runs.get());
  return absl::OkStatus();
}

// A scan whose body draws tells it the index.
absl::Status IndexRuns(bool indexed, ControlCall* call) {
  if (!call->pinned[0]->draws) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(call->functions[0], ops::IndexedRun(*call->pinned[0]->function, indexed));
  return absl::OkStatus();
}

// Returns k where every k-th of a loop's carried values is kept for its gradient, as options say.
absl::StatusOr<int64_t> KeepEvery(std::string_view options, int64_t said, int64_t length) {
  if (said < -1) {
    return UserError(options, ".keep_every is ", said,
                     "; it must be a number of runs, or -1 for the square root of them");
  }
  if (said >= 0) return std::max<int64_t>(said, 1);
  return std::max<int64_t>(static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(length)))), 1);
}

// A loop's body gives what is carried, and slices behind it where that is allowed.
absl::Status CheckBody(const ControlCall& call, size_t carried, bool slices) {
  const FunctionObject& body = *call.pinned.back();
  const size_t given = body.function->results().size();
  if (slices ? given >= carried : given == carried) return absl::OkStatus();
  return UserError("body: the function @", body.name, " gives ", given, " results; ", carried, " values are carried");
}

// The functions of if and case take the same inputs.
struct Choice {
  const ir::OpDef& op;
  weft_context* ctx;
  weft_tensor* chooser;
  std::string_view chooser_name, functions_name;
  std::span<weft_function* const> functions;
  weft_tensor* const* inputs;
  size_t count;
};

absl::Status Choose(const Choice& choice, weft_tensor** outputs, size_t capacity, size_t* out_count) {
  WEFT_NOT_NULL(out_count);
  if (capacity > 0) WEFT_NOT_NULL(outputs);
  ControlCall call;
  WEFT_RETURN_IF_ERROR(Begin(choice.ctx, choice.inputs, choice.count, "inputs", &call));
  WEFT_ASSIGN_OR_RETURN(const Pin<lazy::Tensor> chooser, GetTensor(choice.chooser, choice.chooser_name));
  for (size_t i = 0; i < choice.functions.size(); ++i) {
    const std::string name = choice.op.regions[0].variadic ? absl::StrCat(choice.functions_name, "[", i, "]")
                                                           : std::string(choice.op.regions[i].name);
    WEFT_RETURN_IF_ERROR(AddFunction(choice.functions[i], choice.count, name, &call));
  }
  call.operands.push_back(chooser.get());
  for (const Pin<FunctionObject>& function : call.pinned) {
    for (size_t i = 0; i < choice.count; ++i) call.operands.push_back(call.given[i]);
    AddCaptures(*function, &call);
  }
  return Run(choice.op, {}, call, call.functions[0]->results().size(), outputs, capacity, out_count);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_while(weft_context* ctx, weft_function* condition, weft_function* body, weft_tensor* const* carried,
                       size_t count, weft_tensor** outputs) noexcept {
  return Guard([&]() -> absl::Status {
    if (count > 0) WEFT_NOT_NULL(outputs);
    ControlCall call;
    WEFT_RETURN_IF_ERROR(Begin(ctx, carried, count, "carried", &call));
    WEFT_RETURN_IF_ERROR(AddFunction(condition, count, "condition", &call));
    WEFT_RETURN_IF_ERROR(AddFunction(body, count, "body", &call));
    WEFT_RETURN_IF_ERROR(CheckBody(call, count, false));
    for (size_t i = 0; i < count; ++i) call.operands.push_back(call.given[i]);
    AddCaptures(*call.pinned[0], &call);
    AddCaptures(*call.pinned[1], &call);
    WEFT_RETURN_IF_ERROR(NumberRuns(count, &call));
    size_t made = 0;
    return Run(ops::kOp_while, {}, call, count, outputs, count, &made);
  });
}

weft_error* weft_for(weft_context* ctx, weft_tensor* count, weft_function* body, weft_tensor* const* carried,
                     size_t carried_count, const weft_for_options* options, weft_tensor** outputs) noexcept {
  return Guard([&]() -> absl::Status {
    if (carried_count > 0) WEFT_NOT_NULL(outputs);
    weft_for_options o = {};
    WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof o, "weft_for_options", &o));
    if (o.max_count < 0) return UserError("weft_for_options.max_count is ", o.max_count, "; it must be at least 0");
    WEFT_ASSIGN_OR_RETURN(const int64_t every, KeepEvery("weft_for_options", o.keep_every, o.max_count));
    if (o.keep_every != 0 && o.max_count == 0) {
      return UserError("weft_for_options.keep_every is ", o.keep_every,
                       "; without max_count nothing is kept and there is no gradient");
    }
    ControlCall call;
    WEFT_RETURN_IF_ERROR(Begin(ctx, carried, carried_count, "carried", &call));
    WEFT_ASSIGN_OR_RETURN(const Pin<lazy::Tensor> runs, GetTensor(count, "count"));
    WEFT_RETURN_IF_ERROR(AddFunction(body, carried_count + 1, "body", &call));
    WEFT_RETURN_IF_ERROR(CheckBody(call, carried_count, false));
    call.operands.push_back(runs.get());
    for (size_t i = 0; i < carried_count; ++i) call.operands.push_back(call.given[i]);
    AddCaptures(*call.pinned[0], &call);
    WEFT_RETURN_IF_ERROR(IndexRuns(true, &call));
    using Scan = ops::ScanAttrs;
    ir::Attrs attrs;
    attrs.set(Scan::kLength, o.max_count);
    attrs.set(Scan::kCarried, static_cast<int64_t>(carried_count));
    attrs.set(Scan::kScanned, int64_t{0});
    attrs.set(Scan::kIndexed, int64_t{1});
    attrs.set(Scan::kCounted, int64_t{1});
    attrs.set(Scan::kKept, int64_t{o.max_count > 0 ? 1 : 0});
    attrs.set(Scan::kKeepEvery, every);
    size_t made = 0;
    return Run(ops::kOp_scan, std::move(attrs), call, carried_count, outputs, carried_count, &made);
  });
}

weft_error* weft_scan(weft_context* ctx, weft_function* body, weft_tensor* const* carried, size_t carried_count,
                      weft_tensor* const* scanned, size_t scanned_count, const weft_scan_options* options,
                      weft_tensor** outputs, size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(outputs);
    weft_scan_options o = {};
    WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof o, "weft_scan_options", &o));
    ControlCall call;
    WEFT_RETURN_IF_ERROR(Begin(ctx, carried, carried_count, "carried", &call));
    TensorList slices;
    WEFT_RETURN_IF_ERROR(CheckedLength("scanned", scanned_count, kMostEntries));
    WEFT_RETURN_IF_ERROR(GetTensors(scanned, scanned_count, "scanned", &slices));
    WEFT_RETURN_IF_ERROR(AddFunction(body, carried_count + scanned_count, "body", &call));
    WEFT_RETURN_IF_ERROR(CheckBody(call, carried_count, true));
    if (o.length < 0 || o.unroll < 0) {
      return UserError("weft_scan_options: length is ", o.length, ", unroll ", o.unroll, "; neither may be negative");
    }
    if (scanned_count > 0) {
      if (slices[0]->dims().empty()) return UserError("scanned[0] is a scalar; it needs an axis to be scanned along");
      if (o.length > 0 && o.length != slices[0]->dims()[0]) {
        return UserError("scanned[0] is ", ir::ShortType(slices[0]->type()), "; weft_scan_options.length is ",
                         o.length);
      }
      o.length = slices[0]->dims()[0];
    }
    WEFT_ASSIGN_OR_RETURN(const int64_t every, KeepEvery("weft_scan_options", o.keep_every, o.length));
    for (size_t i = 0; i < carried_count; ++i) call.operands.push_back(call.given[i]);
    for (size_t i = 0; i < scanned_count; ++i) call.operands.push_back(slices[i]);
    AddCaptures(*call.pinned[0], &call);
    WEFT_RETURN_IF_ERROR(IndexRuns(false, &call));
    using Scan = ops::ScanAttrs;
    ir::Attrs attrs;
    attrs.set(Scan::kLength, o.length);
    attrs.set(Scan::kCarried, static_cast<int64_t>(carried_count));
    attrs.set(Scan::kScanned, static_cast<int64_t>(scanned_count));
    attrs.set(Scan::kReverse, int64_t{o.reverse != 0});
    attrs.set(Scan::kIndexed, int64_t{call.pinned[0]->draws});
    attrs.set(Scan::kUnroll, std::max<int64_t>(o.unroll, 1));
    attrs.set(Scan::kKeepEvery, every);
    return Run(ops::kOp_scan, std::move(attrs), call, call.functions[0]->results().size(), outputs, capacity,
               out_count);
  });
}

weft_error* weft_if(weft_context* ctx, weft_tensor* pred, weft_function* true_branch, weft_function* false_branch,
                    weft_tensor* const* inputs, size_t count, weft_tensor** outputs, size_t capacity,
                    size_t* out_count) noexcept {
  return Guard([&] {
    weft_function* const branches[] = {true_branch, false_branch};
    return Choose({ops::kOp_if, ctx, pred, "pred", "branches", branches, inputs, count}, outputs, capacity, out_count);
  });
}

weft_error* weft_case(weft_context* ctx, weft_tensor* index, weft_function* const* branches, size_t branch_count,
                      weft_tensor* const* inputs, size_t count, weft_tensor** outputs, size_t capacity,
                      size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    if (branch_count == 0) return UserError("branches: at least one function is needed");
    WEFT_NOT_NULL(branches);
    WEFT_RETURN_IF_ERROR(CheckedLength("branches", branch_count, kMostEntries));
    return Choose({ops::kOp_case, ctx, index, "index", "branches", {branches, branch_count}, inputs, count}, outputs,
                  capacity, out_count);
  });
}

weft_error* weft_per_device(weft_context* ctx, weft_function* function, const char* input_specs,
                            size_t input_specs_length, const char* output_specs, size_t output_specs_length,
                            weft_tensor* const* inputs, size_t input_count, weft_tensor** outputs, size_t capacity,
                            size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(outputs);
    ControlCall call;
    WEFT_RETURN_IF_ERROR(Begin(ctx, inputs, input_count, "inputs", &call));
    WEFT_RETURN_IF_ERROR(AddFunction(function, input_count, "function", &call));
    const FunctionObject& body = *call.pinned[0];
    if (body.draws) {
      return UserErrorOf(
          absl::StatusCode::kUnimplemented, "the function @", body.name,
          " draws random numbers, and each device would draw the same; draw before, and cut what is drawn");
    }
    WEFT_ASSIGN_OR_RETURN(const std::string_view in, OptionalText(input_specs, input_specs_length, "input_specs"));
    WEFT_ASSIGN_OR_RETURN(const std::string_view out, OptionalText(output_specs, output_specs_length, "output_specs"));
    for (size_t i = 0; i < input_count; ++i) call.operands.push_back(call.given[i]);
    AddCaptures(body, &call);
    WEFT_ASSIGN_OR_RETURN(const lazy::DeviceMesh* mesh, MeshOf(*call.context, call.operands, "weft_per_device"));
    using PerDevice = ops::PerDeviceAttrs;
    ir::Attrs attrs;
    attrs.set(PerDevice::kMesh, ir::ToString(mesh->axes()));
    attrs.set(PerDevice::kInSpecs, std::string(in));
    attrs.set(PerDevice::kOutSpecs, std::string(out));
    return Run(ops::kOp_per_device, std::move(attrs), call, body.function->results().size(), outputs, capacity,
               out_count);
  });
}

}  // extern "C"
