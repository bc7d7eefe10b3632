// weft_metric_get, weft_metrics_*.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/c_api/context.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

// Of the process: what was released wrongly cannot be told to a context.
constexpr std::string_view kOfProcess[] = {"bad_releases", "live_tensors", "live_handles"};
int64_t OfProcess(std::string_view name) {
  if (name == kOfProcess[0]) return BadReleases();
  return name == kOfProcess[1] ? LiveHandles(HandleType::kTensor) : LiveHandles();
}

// The engine's counters and those of the process, so that the lists are whole.
std::string Everything(lazy::Engine& engine, bool json) {
  std::string text = engine.Report(json), more;
  for (std::string_view name : kOfProcess) {
    const int64_t value = OfProcess(name);
    if (json) {
      absl::StrAppend(&more, more.empty() ? "" : ", ", "\"", name, "\": ", value);
    } else if (value != 0) {
      absl::StrAppend(&more, name, ": ", value, "\n");
    }
  }
  if (!json) return text + more;
  text.pop_back();  // the closing brace of {"counters": {…}, "memory": […]}
  return absl::StrCat(text, ", \"process\": {", more, "}}");
}

}  // namespace

extern "C" {

weft_error* weft_metric_get(weft_context* ctx, const char* name, size_t length, int64_t* out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    if (std::ranges::find(kOfProcess, text) != std::end(kOfProcess)) {
      *out_value = OfProcess(text);
      return absl::OkStatus();
    }
    const int64_t value = context->engine().metrics().Get(text);
    if (value < 0)
      return UserErrorOf(absl::StatusCode::kNotFound, "there is no metric '", text, "'; weft_metrics_json names all");
    *out_value = value;
    return absl::OkStatus();
  });
}

weft_error* weft_metrics_report(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    return MakeBlob(Everything(context->engine(), false), out);
  });
}

weft_error* weft_metrics_json(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    return MakeBlob(Everything(context->engine(), true), out);
  });
}

}  // extern "C"
