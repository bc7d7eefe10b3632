// weft_function_vmap, _grad, _vjp, _jvp, _checkpoint and _custom_gradient: functions of functions.
#include "src/c_api/function_object.h"
#include "src/c_api/options.h"
#include "src/transforms/derivative.h"
#include "src/transforms/rules.h"
#include "src/transforms/vmap.h"
#include "weft.h"

namespace weft::c_api {
namespace {

static_assert(WEFT_NOT_MAPPED == transforms::kNotMapped);
static_assert(WEFT_KEEP_INPUTS == static_cast<int>(ops::Keep::kOperands));
static_assert(WEFT_KEEP_PRODUCTS == static_cast<int>(ops::Keep::kProducts));

// Reads the axes as given; all 0 where there are none.
absl::StatusOr<std::vector<int64_t>> Axes(const int64_t* axes, size_t count, size_t wanted, std::string_view name) {
  if (axes == nullptr && count == 0) return std::vector<int64_t>(wanted, 0);
  if (axes == nullptr) return NullArgument(name);
  if (count != wanted) {
    return UserError(name, " has ", count, " entries; the function has ", wanted,
                     name == "in_axes" ? " inputs" : " results");
  }
  return std::vector<int64_t>(axes, axes + count);
}

absl::StatusOr<transforms::Randomness> RandomnessOf(const weft_vmap_options& options) {
  switch (static_cast<int32_t>(options.randomness)) {
    case WEFT_RANDOMNESS_DIFFERENT: return transforms::Randomness::kDifferent;
    case WEFT_RANDOMNESS_SAME: return transforms::Randomness::kSame;
    case WEFT_RANDOMNESS_ERROR: return transforms::Randomness::kError;
    default:
      return UserError("weft_vmap_options: randomness is ", static_cast<int32_t>(options.randomness),
                       "; it is 0, 1 or 2");
  }
}

// A handle for what was made of `of`, with its captures and its stream.
absl::Status GiveOut(const FunctionObject& of, Ref<const ir::Function> made, weft_function** out) {
  lazy::Recorder::Finished finished{std::move(made), of.captures, of.draws};
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_function>(MakeRef<FunctionObject>(of.engine, of.name, std::move(finished))));
  return absl::OkStatus();
}

using DerivativeFn = absl::StatusOr<Ref<const ir::Function>> (*)(const transforms::DerivativeCall& call);
absl::Status Derivative(DerivativeFn make, weft_context* ctx, weft_function* function, const int64_t* wrt, size_t count,
                        const weft_derivative_options* options, weft_function** out) {
  WEFT_NOT_NULL(out);
  WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->Usable());
  WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, GetFunction(function, *context, "function"));
  weft_derivative_options o = {};
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof o, "weft_derivative_options", &o));
  if (wrt == nullptr && count != 0) return NullArgument("wrt");
  if (wrt != nullptr && count == 0) return UserError("wrt is empty; NULL means every float input");
  if (count > f->inputs()) {
    return UserError("wrt has ", count, " entries; the function @", f->name, " has ", f->inputs(), " inputs");
  }
  WEFT_ASSIGN_OR_RETURN(
      Ref<const ir::Function> made,
      make({.function = *f->function, .inputs = f->inputs(), .wrt = std::span(wrt, count), .values = o.values != 0}));
  return GiveOut(*f, std::move(made), out);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;         // NOLINT(google-build-using-namespace)
using namespace weft::c_api;  // NOLINT(google-build-using-namespace)

extern "C" {

weft_error* weft_function_vmap(weft_context* ctx, weft_function* function, int64_t size, const int64_t* in_axes,
                               size_t in_count, const int64_t* out_axes, size_t out_count,
                               const weft_vmap_options* options, weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, GetFunction(function, *context, "function"));
    weft_vmap_options o = {};
    WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof o, "weft_vmap_options", &o));
    WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> in, Axes(in_axes, in_count, f->inputs(), "in_axes"));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> outs,
                          Axes(out_axes, out_count, f->function->results().size(), "out_axes"));
    WEFT_ASSIGN_OR_RETURN(const transforms::Randomness randomness, RandomnessOf(o));
    in.resize(in.size() + f->captures.size(), WEFT_NOT_MAPPED);
    WEFT_ASSIGN_OR_RETURN(Ref<const ir::Function> vmapped, transforms::Vmap({.function = *f->function,
                                                                             .draws = f->draws,
                                                                             .size = size,
                                                                             .in_axes = in,
                                                                             .out_axes = outs,
                                                                             .randomness = randomness}));
    return GiveOut(*f, std::move(vmapped), out);
  });
}

weft_error* weft_function_grad(weft_context* ctx, weft_function* function, const int64_t* wrt, size_t wrt_count,
                               const weft_derivative_options* options, weft_function** out) noexcept {
  return Guard([&] { return Derivative(transforms::Grad, ctx, function, wrt, wrt_count, options, out); });
}

weft_error* weft_function_vjp(weft_context* ctx, weft_function* function, const int64_t* wrt, size_t wrt_count,
                              const weft_derivative_options* options, weft_function** out) noexcept {
  return Guard([&] { return Derivative(transforms::Vjp, ctx, function, wrt, wrt_count, options, out); });
}

weft_error* weft_function_jvp(weft_context* ctx, weft_function* function, const int64_t* wrt, size_t wrt_count,
                              const weft_derivative_options* options, weft_function** out) noexcept {
  return Guard([&] { return Derivative(transforms::Jvp, ctx, function, wrt, wrt_count, options, out); });
}

weft_error* weft_function_checkpoint(weft_context* ctx, weft_function* function, weft_keep keep,
                                     weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, GetFunction(function, *context, "function"));
    const auto said = static_cast<int32_t>(keep);
    if (said != WEFT_KEEP_INPUTS && said != WEFT_KEEP_PRODUCTS) return UserError("keep is ", said, "; it is 0 or 1");
    WEFT_ASSIGN_OR_RETURN(Ref<const ir::Function> made,
                          transforms::Checkpoint(*f->function, static_cast<ops::Keep>(said)));
    return GiveOut(*f, std::move(made), out);
  });
}

weft_error* weft_function_custom_gradient(weft_context* ctx, weft_function* function, weft_function* forward,
                                          weft_function* backward, weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, GetFunction(function, *context, "function"));
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> ahead, GetFunction(forward, *context, "forward"));
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> back, GetFunction(backward, *context, "backward"));
    const auto rule = [](const FunctionObject& of) {
      return transforms::Rule{.function = *of.function, .inputs = of.inputs(), .draws = of.draws};
    };
    WEFT_ASSIGN_OR_RETURN(Ref<const ir::Function> made,
                          transforms::CustomGradient(rule(*f), rule(*ahead), rule(*back)));
    lazy::Recorder::Finished finished{std::move(made), f->captures, f->draws || ahead->draws};
    for (const FunctionObject* more : {&*ahead, &*back}) {
      for (const Ref<lazy::Tensor>& capture : more->captures) finished.captures.push_back(capture);
    }
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_function>(MakeRef<FunctionObject>(f->engine, f->name, std::move(finished))));
    return absl::OkStatus();
  });
}

}  // extern "C"
