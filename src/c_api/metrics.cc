// weft_metric_get, weft_metrics_*.
#include <algorithm>
#include <string>

#include "src/c_api/context.h"
#include "src/c_api/guess.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

// The process counts what was released wrongly: no context can be told.
constexpr std::string_view kOfProcess[] = {"bad_releases", "live_tensors", "live_handles"};
int64_t OfProcess(std::string_view name) {
  if (name == kOfProcess[0]) return BadReleases();
  return name == kOfProcess[1] ? LiveHandles(HandleType::kTensor) : LiveHandles();
}

// The engine's counters and those of the process, so that the lists are whole.
Snapshot Everything(const lazy::Engine& engine) {
  Snapshot snapshot = engine.TakeSnapshot();
  for (std::string_view name : kOfProcess) snapshot.process.emplace_back(name, OfProcess(name));
  return snapshot;
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
    if (value < 0) {
      std::vector<std::string_view> names(std::begin(kOfProcess), std::end(kOfProcess));
      for (int i = 0; i < static_cast<int>(Counter::kCount); ++i) names.push_back(NameOf(static_cast<Counter>(i)));
      return UserErrorOf(absl::StatusCode::kNotFound, "there is no metric '", text, "'", DidYouMean(text, names),
                         "weft_metrics_json names all");
    }
    *out_value = value;
    return absl::OkStatus();
  });
}

weft_error* weft_metrics_report(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    return MakeBlob(ReportOf(Everything(context->engine())), out);
  });
}

weft_error* weft_metrics_json(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    return MakeBlob(JsonOf(Everything(context->engine())), out);
  });
}

}  // extern "C"
