// weft_function_*: programs as values. A body is recorded through a context of its own.
#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "src/c_api/function_object.h"
#include "src/c_api/op_call.h"
#include "src/c_api/text_on_mesh.h"
#include "src/compiler/lower.h"
#include "src/ir/rewrite.h"
#include "src/ir/text.h"
#include "src/ops/control/captures.h"
#include "src/ops/registry.h"
#include "src/runtime/file_kind.h"
#include "weft.h"

namespace weft::c_api {

absl::StatusOr<Pin<FunctionObject>> GetFunction(const weft_function* function, const Context& context,
                                                std::string_view parameter) {
  WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> found, Get(function, parameter));
  if (found->engine.get() != &context.engine()) {
    return UserError(parameter, ": the function @", found->name, " belongs to another context");
  }
  return found;
}

absl::Status GiveOut(lazy::Tensors results, weft_tensor** outputs, size_t capacity, size_t* out_count) {
  if (results.size() > capacity) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, "there are ", results.size(), " results; capacity is ", capacity);
  }
  std::vector<weft_tensor*> made;
  WEFT_RETURN_IF_ERROR(MakeTensors({results.data(), results.size()}, &made));
  std::ranges::copy(made, outputs);
  *out_count = made.size();
  return absl::OkStatus();
}

absl::Status GiveOut(const Context& context, Ref<const ir::Function> function, bool draws, weft_function** out) {
  std::string name = function->name();  // an equal function may have another
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_function>(MakeRef<FunctionObject>(
                                  Ref<lazy::Engine>::Share(&context.engine()), std::move(name),
                                  lazy::Recorder::Finished{ir::Intern(std::move(function)), {}, draws})));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<lazy::Tensor*>> ArgumentsOf(const FunctionObject& function, const TensorList& given,
                                                       size_t count) {
  const size_t inputs = function.inputs(), all = inputs + function.captures.size();
  if (count < inputs || count > all) {
    return UserError("the function @", function.name, " takes ", inputs, " inputs",
                     all > inputs ? absl::StrCat(", with its captures up to ", all) : "", "; there are ", count);
  }
  std::vector<lazy::Tensor*> arguments;
  for (size_t i = 0; i < all; ++i) {
    lazy::Tensor* argument = i < count ? given[i] : nullptr;
    if (argument == nullptr && i < inputs) return UserError("inputs[", i, "] is NULL");
    arguments.push_back(argument != nullptr ? argument : function.captures[i - inputs].get());
  }
  if (function.draws) arguments.push_back(nullptr);
  return arguments;
}

absl::Status CheckArguments(const FunctionObject& function, std::span<lazy::Tensor* const> arguments) {
  std::vector<const ir::Type*> types;
  for (const lazy::Tensor* argument : arguments) {
    if (argument != nullptr) types.push_back(&argument->type());
  }
  return ops::CheckParameters(*function.function, 0, types);
}

namespace {

// A name that all texts can spell.
absl::StatusOr<std::string> NameOfFunction(const char* name, size_t length) {
  if (name == nullptr) return "function";
  WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(name, length, "name"));
  const auto fits = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.'; };
  const bool begins = !text.empty() && (absl::ascii_isalpha(text[0]) || text[0] == '_');
  if (!begins || text.size() > 200 || !std::ranges::all_of(text, fits)) {
    return UserError("name '", text.substr(0, 200), "': a function's name is at most 200 letters, digits, _ and ., ",
                     "and begins with a letter or _");
  }
  return std::string(text);
}

absl::StatusOr<std::vector<ir::Type>> TypesOf(const weft_tensor_info* infos, size_t count) {
  if (count > 0 && infos == nullptr) return NullArgument("inputs");
  WEFT_RETURN_IF_ERROR(CheckedLength("inputs", count, kMostEntries));
  std::vector<ir::Type> types;
  for (size_t i = 0; i < count; ++i) {
    const weft_tensor_info& info = infos[i];
    const auto at = [&](const absl::Status& status) {
      return absl::Status(status.code(), absl::StrCat("inputs[", i, "]: ", status.message()));
    };
    const absl::StatusOr<DType> dtype = CheckedDType(info.dtype);
    if (!dtype.ok()) return at(dtype.status());
    const absl::StatusOr<int64_t> bytes = CheckedBytes(*dtype, info.dims, info.rank);
    if (!bytes.ok()) return at(bytes.status());
    types.push_back(ir::Type::Tensor(*dtype, {info.dims, info.dims + info.rank}));
  }
  return types;
}

// A body with its handles; abandoned and given back unless it has ended.
class Body {
 public:
  Body() = default;
  Body(const Body&) = delete;
  ~Body() {
    for (weft_tensor* parameter : parameters_) ReleaseHandle(parameter, HandleType::kTensor);
    if (context_ != nullptr) ReleaseContext(context_);
  }

  absl::Status Begin(weft_context* ctx, const char* name, size_t name_length, const weft_tensor_info* inputs,
                     size_t count) {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> around, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(around->Usable());
    WEFT_ASSIGN_OR_RETURN(std::string text, NameOfFunction(name, name_length));
    WEFT_ASSIGN_OR_RETURN(const std::vector<ir::Type> types, TypesOf(inputs, count));
    lazy::Tensors made;
    WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Frame> frame,
                          around->engine().BeginFunction(around->where(), std::move(text), types, &made,
                                                         CurrentLocation(around->engine())));
    absl::Cleanup abandon = [&] { around->engine().AbandonFunction(*frame); };
    Ref<Context> body = Context::OfBody(*around, frame);  // its end abandons it
    std::move(abandon).Cancel();
    WEFT_ASSIGN_OR_RETURN(context_, Make<weft_context>(std::move(body)));
    return MakeTensors({made.data(), made.size()}, &parameters_);
  }

  weft_context* context() const { return context_; }
  std::span<weft_tensor* const> parameters() const { return parameters_; }
  // Hands the caller what it owns from now on.
  void Give(weft_context** context, weft_tensor** parameters) {
    *context = std::exchange(context_, nullptr);
    std::ranges::copy(parameters_, parameters);
    parameters_.clear();
  }

 private:
  weft_context* context_ = nullptr;
  std::vector<weft_tensor*> parameters_;
};

absl::StatusOr<Pin<Context>> GetBody(const weft_context* body) {
  WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(body, "body"));
  if (context->frame() == nullptr) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "body is a whole context; weft_function_begin gives the context of a body");
  }
  return context;
}

absl::Status End(weft_context* body, weft_tensor* const* results, size_t count, weft_function** out) {
  WEFT_ASSIGN_OR_RETURN(Pin<Context> context, GetBody(body));
  TensorList list;
  WEFT_RETURN_IF_ERROR(GetTensors(results, count, "results", &list));
  lazy::Frame& frame = *context->frame();
  WEFT_ASSIGN_OR_RETURN(lazy::Recorder::Finished finished, context->engine().FinishFunction(frame, list));
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_function>(MakeRef<FunctionObject>(Ref<lazy::Engine>::Share(&context->engine()),
                                                                          frame.name, std::move(finished))));
  return absl::OkStatus();
}

// Runs the caller's function on a body.
absl::Status Fill(const Body& body, weft_trace_fn trace, void* user_data, size_t capacity,
                  std::vector<weft_tensor*>* results, size_t* count) {
  results->resize(capacity);
  weft_error* error = nullptr;
  {
    const CallingOut out;
    error = trace(user_data, body.context(), body.parameters().data(), body.parameters().size(), results->data(),
                  capacity, count);
  }
  const size_t said = std::exchange(*count, std::min(*count, capacity));
  const absl::Cleanup release = [&] { weft_error_release(error); };
  if (error != nullptr) return FromError(error);
  if (said <= capacity) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kOutOfRange, "the callback says it gives ", said, " results; capacity is ",
                     capacity);
}

// The text of a program. It may be the bytes of any file, and then says of which kind.
absl::StatusOr<std::string_view> ProgramText(const char* data, size_t length) {
  absl::StatusOr<std::string_view> text = Text(data, length, "text");
  if (data == nullptr || (length != WEFT_STRLEN && length > kMostBytes)) return text;
  const size_t bytes = length == WEFT_STRLEN ? strnlen(data, kSniffedBytes) : std::min(length, kSniffedBytes);
  const std::string_view kind = KindOfFile(std::as_bytes(std::span(data, bytes)));
  if (kind.empty()) return text;
  return UserError("text is no StableHLO: it is ", kind);
}

absl::Status TypesOut(std::span<const ir::Value> values, weft_tensor_info* out, size_t capacity, size_t* out_count) {
  WEFT_NOT_NULL(out_count);
  if (capacity > 0) WEFT_NOT_NULL(out);
  for (size_t i = 0; i < std::min(capacity, values.size()); ++i) {
    const ir::Type& type = values[i].type();
    out[i] = {};
    out[i].dtype = static_cast<weft_dtype>(type.dtype);
    out[i].rank = static_cast<uint32_t>(type.dims.size());
    std::ranges::copy(type.dims, out[i].dims);
  }
  *out_count = values.size();
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_function_begin(weft_context* ctx, const char* name, size_t name_length, const weft_tensor_info* inputs,
                                size_t input_count, weft_context** out_body, weft_tensor** out_parameters) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_body);
    if (input_count > 0) WEFT_NOT_NULL(out_parameters);
    Body body;
    WEFT_RETURN_IF_ERROR(body.Begin(ctx, name, name_length, inputs, input_count));
    body.Give(out_body, out_parameters);
    return absl::OkStatus();
  });
}

weft_error* weft_function_end(weft_context* body, weft_tensor* const* results, size_t result_count,
                              weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    return End(body, results, result_count, out);
  });
}

weft_error* weft_function_abandon(weft_context* body) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, GetBody(body));
    context->engine().AbandonFunction(*context->frame());
    return absl::OkStatus();
  });
}

weft_error* weft_function_trace(weft_context* ctx, const char* name, size_t name_length, const weft_tensor_info* inputs,
                                size_t input_count, weft_trace_fn trace, void* user_data, size_t result_capacity,
                                weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_NOT_NULL(trace);
    WEFT_RETURN_IF_ERROR(CheckedLength("result_capacity", result_capacity, kMostEntries));
    Body body;
    WEFT_RETURN_IF_ERROR(body.Begin(ctx, name, name_length, inputs, input_count));
    std::vector<weft_tensor*> results;
    size_t count = 0;
    const absl::Cleanup release = [&] {
      // A callback that throws has its count still unchecked.
      for (size_t i = 0; i < std::min(count, results.size()); ++i) ReleaseHandle(results[i], HandleType::kTensor);
    };
    WEFT_RETURN_IF_ERROR(Fill(body, trace, user_data, result_capacity, &results, &count));
    return End(body.context(), results.data(), count, out);
  });
}

weft_error* weft_function_call(weft_context* ctx, weft_function* function, weft_tensor* const* inputs, size_t count,
                               weft_tensor** outputs, size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(outputs);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> callee, GetFunction(function, *context, "function"));
    WEFT_RETURN_IF_ERROR(CheckedLength("inputs", count, kMostEntries));
    TensorList given;
    WEFT_RETURN_IF_ERROR(GetOptionalTensors(inputs, count, "inputs", &given));
    WEFT_ASSIGN_OR_RETURN(const std::vector<lazy::Tensor*> arguments, ArgumentsOf(*callee, given, count));
    const size_t wanted = callee->function->results().size();
    if (wanted > capacity) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "the function @", callee->name, " has ", wanted,
                         " results; capacity is ", capacity);
    }
    if (wanted == 0) {  // nothing to record
      WEFT_RETURN_IF_ERROR(CheckArguments(*callee, arguments));
      *out_count = 0;
      return absl::OkStatus();
    }
    lazy::Tensors results;
    WEFT_RETURN_IF_ERROR(context->engine().Record(ops::kOp_call, arguments, {}, CurrentLocation(context->engine()),
                                                  &results, context->where(), {&callee->function, 1}));
    return GiveOut(std::move(results), outputs, capacity, out_count);
  });
}

weft_error* weft_function_from_stablehlo(weft_context* ctx, const char* text, size_t length,
                                         weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(const std::string_view program, ProgramText(text, length));
    WEFT_ASSIGN_OR_RETURN(const ir::Module module, ReadTextFor(*context, program));
    return GiveOut(*context, module.functions[0], module.draws, out);
  });
}

weft_error* weft_function_name(weft_function* function, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, Get(function, "function"));
    return MakeBlob(f->name, out);
  });
}

weft_error* weft_function_inputs(weft_function* function, weft_tensor_info* out, size_t capacity,
                                 size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, Get(function, "function"));
    return TypesOut(f->function->parameters().first(f->inputs()), out, capacity, out_count);
  });
}

weft_error* weft_function_results(weft_function* function, weft_tensor_info* out, size_t capacity,
                                  size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, Get(function, "function"));
    return TypesOut(f->function->results(), out, capacity, out_count);
  });
}

weft_error* weft_function_captures(weft_function* function, weft_tensor** outputs, size_t capacity,
                                   size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(outputs);
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, Get(function, "function"));
    return GiveOut(f->captures, outputs, capacity, out_count);
  });
}

weft_error* weft_function_text(weft_function* function, weft_text_format format, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, Get(function, "function"));
    WEFT_ASSIGN_OR_RETURN(const bool stablehlo, IsStableHlo(format));
    ir::Module module;
    module.functions.push_back(f->function);
    if (!stablehlo) return MakeBlob(ir::Print(module), out);
    module.functions[0] = ir::CopyFunction(*f->function);  // passes mark what they walk, and threads share functions
    WEFT_ASSIGN_OR_RETURN(std::string text, compiler::StableHloText(module));
    return MakeBlob(std::move(text), out);
  });
}

void weft_function_retain(weft_function* function) noexcept { RetainHandle(function, HandleType::kFunction); }
void weft_function_release(weft_function* function) noexcept { ReleaseHandle(function, HandleType::kFunction); }

}  // extern "C"
