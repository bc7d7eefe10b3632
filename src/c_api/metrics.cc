// weft_metric_get, weft_metrics_*.
#include "src/c_api/context.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_metric_get(weft_context* ctx, const char* name, size_t length, int64_t* out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    WEFT_ASSIGN_OR_RETURN(Context * context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    // Of the process: what was released wrongly cannot be told to a context.
    if (text == "bad_releases" || text == "live_tensors") {
      *out_value = text == "bad_releases" ? BadReleases() : LiveHandles(HandleType::kTensor);
      return absl::OkStatus();
    }
    const int64_t value = context->engine().metrics().Get(text);
    if (value < 0) return UserErrorOf(absl::StatusCode::kNotFound, "there is no metric '", text, "'; weft_metrics_json names all");
    *out_value = value;
    return absl::OkStatus();
  });
}

weft_error* weft_metrics_report(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Context * context, Get(ctx, "ctx"));
    return MakeBlob(context->engine().Report(false), out);
  });
}

weft_error* weft_metrics_json(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Context * context, Get(ctx, "ctx"));
    return MakeBlob(context->engine().Report(true), out);
  });
}

}  // extern "C"
