// weft_metric_*, weft_metrics_*.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/c_api/context.h"
#include "src/c_api/guess.h"
#include "src/c_api/options.h"
#include "src/c_api/report.h"
#include "src/ops/registry.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

// The process counts what was released wrongly: no context can be told.
constexpr MetricInfo kOfProcess[] = {{"bad_releases", "handles that were released wrongly"},
                                     {"live_tensors", "handles of tensors that live"},
                                     {"live_handles", "handles that live"}};
int64_t OfProcess(size_t i) {
  if (i == 0) return BadReleases();
  return i == 1 ? LiveHandles(HandleType::kTensor) : LiveHandles();
}

// The engine's counters and those of the process, so that the lists are whole.
Snapshot Everything(const lazy::Engine& engine) {
  Snapshot snapshot = engine.TakeSnapshot();
  for (size_t i = 0; i < std::size(kOfProcess); ++i) snapshot.AddOfProcess(kOfProcess[i], OfProcess(i));
  return snapshot;
}

absl::Status NoMetric(std::string_view kind, std::string_view name, const Metrics& metrics, bool samples) {
  const std::vector<std::string> known = metrics.Names(samples);
  std::vector<std::string_view> names(known.begin(), known.end());
  for (const MetricInfo& info : kOfProcess) {
    if (!samples) names.push_back(info.name);
  }
  std::vector<std::string> operations;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (!samples) operations.push_back(absl::StrCat(kOfOperation, op->c_name));
  }
  names.insert(names.end(), operations.begin(), operations.end());
  return UserErrorOf(absl::StatusCode::kNotFound, "there is no ", kind, " '", name, "'", DidYouMean(name, names),
                     "weft_metric_list names all");
}

absl::StatusOr<Unit> UnitOf(weft_metric_unit unit) {
  switch (unit) {
    case WEFT_METRIC_NUMBER: return Unit::kNumber;
    case WEFT_METRIC_NANOSECONDS: return Unit::kNanoseconds;
    case WEFT_METRIC_BYTES: return Unit::kBytes;
    default: return UserError("unit is ", static_cast<int>(unit), "; there are 0 to 2");
  }
}

absl::StatusOr<std::string> Rendered(const Snapshot& snapshot, weft_metrics_format format) {
  switch (format) {
    case WEFT_METRICS_TEXT: return ReportOf(snapshot);
    case WEFT_METRICS_JSON: return JsonOf(snapshot);
    case WEFT_METRICS_XLA: return XlaReportOf(snapshot, false);
    case WEFT_METRICS_XLA_2019: return XlaReportOf(snapshot, true);
    case WEFT_METRICS_OPENMETRICS: return OpenMetricsOf(snapshot);
    default: return UserError("format is ", static_cast<int>(format), "; there are 0 to 4");
  }
}

// `function` is who calls this.
weft_error* Render(weft_context* ctx, weft_metrics_format format, weft_blob** out,
                   const char* function = __builtin_FUNCTION()) noexcept {
  const auto body = [&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(const std::string text, RenderMetrics(context->engine(), format));
    return MakeBlob(text, out);
  };
  return Guard(body, function);
}

}  // namespace

absl::StatusOr<std::string> weft::c_api::RenderMetrics(const lazy::Engine& engine, weft_metrics_format format) {
  return Rendered(Everything(engine), format);
}

extern "C" {

weft_error* weft_metric_get(weft_context* ctx, const char* name, size_t length, int64_t* out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    const auto* const process = std::ranges::find(kOfProcess, text, &MetricInfo::name);
    if (process != std::end(kOfProcess)) {
      *out_value = OfProcess(static_cast<size_t>(process - kOfProcess));
      return absl::OkStatus();
    }
    const std::optional<int64_t> value = context->engine().CounterOf(text);
    if (!value.has_value()) return NoMetric("counter", text, context->engine().metrics(), false);
    *out_value = *value;
    return absl::OkStatus();
  });
}

weft_error* weft_metric_samples(weft_context* ctx, const char* name, size_t length, weft_metric_summary* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    const Metrics& metrics = context->engine().metrics();
    const std::optional<SampleSummary> found = metrics.Summarize(text);
    if (!found.has_value()) return NoMetric("sample", text, metrics, true);
    const auto& p = found->percentiles;
    weft_metric_summary summary = WEFT_METRIC_SUMMARY_INIT;
    summary.count = found->count, summary.sum = found->sum;
    summary.least = found->least, summary.largest = found->largest;
    summary.p1 = p[0], summary.p5 = p[1], summary.p10 = p[2], summary.p20 = p[3], summary.p50 = p[4];
    summary.p80 = p[5], summary.p90 = p[6], summary.p95 = p[7], summary.p99 = p[8];
    return WriteStruct(&summary, sizeof(summary), "weft_metric_summary", out);
  });
}

weft_error* weft_metric_add(weft_context* ctx, const char* name, size_t length, int64_t amount) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    if (absl::StartsWith(text, kOfOperationXla) && ops::FindCalled(text.substr(kOfOperationXla.size())) != nullptr) {
      return UserError("metric '", text, "' is counted by Weft itself");
    }
    return context->engine().metrics().AddNamed(text, amount);
  });
}

weft_error* weft_metric_record(weft_context* ctx, const char* name, size_t length, weft_metric_unit unit,
                               int64_t value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    WEFT_ASSIGN_OR_RETURN(const Unit known, UnitOf(unit));
    return context->engine().metrics().Record(text, known, value);
  });
}

weft_error* weft_metrics_report(weft_context* ctx, weft_blob** out) noexcept {
  return Render(ctx, WEFT_METRICS_TEXT, out);
}
weft_error* weft_metrics_json(weft_context* ctx, weft_blob** out) noexcept {
  return Render(ctx, WEFT_METRICS_JSON, out);
}
weft_error* weft_metrics_render(weft_context* ctx, weft_metrics_format format, weft_blob** out) noexcept {
  return Render(ctx, format, out);
}

weft_error* weft_metric_list(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    return MakeBlob(MetricListOf(Everything(context->engine())), out);
  });
}

weft_error* weft_metrics_clear(weft_context* ctx) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    context->engine().ClearMetrics();
    return absl::OkStatus();
  });
}

}  // extern "C"
