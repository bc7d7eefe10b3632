// weft_function_run, weft_function_compile, weft_function_stats: functions by themselves.
#include <algorithm>

#include "src/c_api/event_object.h"
#include "src/c_api/function_object.h"
#include "src/c_api/op_call.h"
#include "src/c_api/options.h"
#include "src/c_api/settings.h"
#include "src/compiler/cost.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// One flag for each of `all` operands, of which the first `inputs` may be donated.
absl::StatusOr<std::vector<uint8_t>> Donated(const int64_t* donated, size_t count, size_t inputs, size_t all) {
  if (count > 0) WEFT_NOT_NULL(donated);
  WEFT_RETURN_IF_ERROR(CheckedLength("donated", count, kMostEntries));
  std::vector<uint8_t> flags(all);
  for (size_t i = 0; i < count; ++i) {
    if (donated[i] < 0 || static_cast<size_t>(donated[i]) >= inputs) {
      return UserError("donated[", i, "] is ", donated[i], "; there are ", inputs, " inputs");
    }
    uint8_t& flag = flags[static_cast<size_t>(donated[i])];
    if (flag != 0) return UserError("donated[", i, "] is ", donated[i], ", which stands there twice");
    flag = 1;
  }
  return flags;
}

// An argument that is taken away from the caller must not be wanted in the same call.
absl::Status CheckGivenOnce(std::span<lazy::Tensor* const> arguments, std::span<const uint8_t> donated) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (size_t k = 0; donated[i] != 0 && k < arguments.size(); ++k) {
      if (k == i || arguments[k] != arguments[i]) continue;
      return UserError("inputs[", i, "] is donated and is operand ", k, " as well; copy it (weft_tensor_copy)");
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_function_run(weft_context* ctx, weft_function* function, weft_tensor* const* inputs, size_t count,
                              const int64_t* donated, size_t donated_count, weft_tensor** outputs, size_t capacity,
                              size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(outputs);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, GetFunction(function, *context, "function"));
    WEFT_RETURN_IF_ERROR(CheckedLength("inputs", count, kMostEntries));
    TensorList given;
    WEFT_RETURN_IF_ERROR(GetOptionalTensors(inputs, count, "inputs", &given));
    WEFT_ASSIGN_OR_RETURN(const std::vector<lazy::Tensor*> arguments, ArgumentsOf(*f, given, count));
    WEFT_ASSIGN_OR_RETURN(const std::vector<uint8_t> flags, Donated(donated, donated_count, count, arguments.size()));
    for (size_t i = 0; i < count; ++i) {
      if (flags[i] != 0 && given[i] == nullptr) return UserError("donated: inputs[", i, "] is NULL");
    }
    WEFT_RETURN_IF_ERROR(CheckGivenOnce(arguments, flags));
    const size_t wanted = f->function->results().size();
    if (wanted > capacity) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "the function @", f->name, " has ", wanted,
                         " results; capacity is ", capacity);
    }
    WEFT_RETURN_IF_ERROR(CheckArguments(*f, arguments));
    if (wanted == 0) {  // nothing to launch
      *out_count = 0;
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(lazy::Tensors results, context->WithPressure(0, [&] {
      return context->engine().RunFunction({f->function, f->draws, flags}, arguments,
                                           CurrentLocation(context->engine()), context->where());
    }));
    return GiveOut(std::move(results), outputs, capacity, out_count);
  });
}

weft_error* weft_function_compile(weft_context* ctx, weft_function* function, weft_device* device, const char* isa,
                                  size_t isa_length, const int64_t* donated, size_t donated_count,
                                  weft_event** out_event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, GetFunction(function, *context, "function"));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where where, WhereOf(*context, device));
    std::string target;
    if (isa != nullptr) {
      WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(isa, isa_length, "isa"));
      WEFT_ASSIGN_OR_RETURN(target, CheckOption(Option::kIsa, text, "isa"));
    }
    const size_t all = f->function->parameters().size();
    WEFT_ASSIGN_OR_RETURN(const std::vector<uint8_t> flags,
                          Donated(donated, donated_count, all - (f->draws ? 1 : 0), all));
    WEFT_ASSIGN_OR_RETURN(Ref<Event> event, context->WithPressure(0, [&] {
      return context->engine().CompileFunction({f->function, f->draws, flags}, where, target, out_event == nullptr);
    }));
    return MakeEvent(*context, std::move(event), out_event);
  });
}

weft_error* weft_function_stats(weft_context* ctx, weft_function* function, weft_device* device, const int64_t* donated,
                                size_t donated_count, weft_program_stats* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, GetFunction(function, *context, "function"));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where where, WhereOf(*context, device));
    const ir::Function& program = *f->function;
    const size_t all = program.parameters().size();
    WEFT_ASSIGN_OR_RETURN(const std::vector<uint8_t> flags,
                          Donated(donated, donated_count, all - (f->draws ? 1 : 0), all));
    WEFT_ASSIGN_OR_RETURN(const compiler::Cost cost, compiler::CostOf(program));
    WEFT_ASSIGN_OR_RETURN(const ExecutableStats compiled, context->WithPressure(0, [&] {
      return context->engine().FunctionStats({f->function, f->draws, flags}, where);
    }));
    weft_program_stats stats = WEFT_PROGRAM_STATS_INIT;
    stats.flops = cost.flops;
    stats.transcendentals = cost.transcendentals;
    for (const ir::Value& parameter : program.parameters()) {
      stats.argument_bytes += static_cast<uint64_t>(parameter.type().bytes());
    }
    for (const ir::Value& result : program.results())
      stats.result_bytes += static_cast<uint64_t>(result.type().bytes());
    stats.temporary_bytes = static_cast<uint64_t>(compiled.temporary_bytes);
    stats.code_bytes = static_cast<uint64_t>(compiled.code_bytes);
    stats.kernels = static_cast<uint64_t>(compiled.kernels);
    stats.bytes_accessed = static_cast<uint64_t>(std::max<int64_t>(compiled.bytes_accessed, 0));
    return WriteStruct(&stats, sizeof(stats), "weft_program_stats", out);
  });
}

}  // extern "C"
