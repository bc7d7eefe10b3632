// weft_function_vmap: functions of functions.
#include "src/transforms/vmap.h"

#include "src/c_api/function_object.h"
#include "src/c_api/options.h"
#include "weft.h"

namespace weft::c_api {
namespace {

static_assert(WEFT_NOT_MAPPED == transforms::kNotMapped);

// As given; all 0 where there is none.
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
    WEFT_ASSIGN_OR_RETURN(
        *out, Make<weft_function>(MakeRef<FunctionObject>(
                  f->engine, f->name, lazy::Recorder::Finished{std::move(vmapped), f->captures, f->draws})));
    return absl::OkStatus();
  });
}

}  // extern "C"
