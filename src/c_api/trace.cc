// weft_trace_*, weft_span_*.
#include <array>
#include <cstring>

#include "src/c_api/ceilings.h"
#include "src/c_api/context.h"
#include "src/c_api/trace_file.h"
#include "src/runtime/parts.h"
#include "src/runtime/trace_render.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

// The caller's spans that this thread has begun, of all contexts.
struct OpenSpan {
  uint64_t trace = 0;
  const SpanName* name = nullptr;  // null: nobody traced when it began
  uint64_t begin = 0;
};
constexpr size_t kMostOpen = 64;
constexpr size_t kMostNameBytes = 256;
struct OpenSpans {
  std::array<OpenSpan, kMostOpen> spans;
  size_t count = 0;
  uint64_t deeper = 0;  // that have begun inside those and are not kept
};
constinit thread_local OpenSpans t_open;

void BeginSpan(uint64_t trace, std::string_view name) {
  OpenSpans& open = t_open;
  if (open.count == kMostOpen) {
    ++open.deeper;
    return;
  }
  OpenSpan& span = open.spans[open.count++];
  span = {trace};
  if (!Tracing() || LaneOf(trace) == nullptr) return;
  try {
    span.name = InternSpanName({.text = name.substr(0, kMostNameBytes), .kind = SpanKind::kUser});
  } catch (const std::bad_alloc&) {
    return;
  }
  PartScope::SplitSpan(trace);
  span.begin = TraceTicks();
}

void EndSpan(uint64_t trace) {
  OpenSpans& open = t_open;
  if (open.deeper > 0) {
    --open.deeper;
    return;
  }
  size_t at = open.count;
  while (at > 0 && open.spans[at - 1].trace != trace) --at;
  if (at == 0) return;
  const OpenSpan span = open.spans[at - 1];
  std::move(open.spans.begin() + static_cast<ptrdiff_t>(at), open.spans.begin() + static_cast<ptrdiff_t>(open.count),
            open.spans.begin() + static_cast<ptrdiff_t>(at - 1));
  --open.count;
  if (span.name == nullptr || !Tracing()) return;
  PartScope::SplitSpan(trace);
  if (TraceLane* const lane = LaneOf(trace)) lane->Add(*span.name, span.begin, TraceTicks(), 0);
}

}  // namespace

extern "C" {

weft_error* weft_trace_start(weft_context* ctx) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    return context->trace().Start(context->settings().integer(Option::kTraceBytes));
  });
}

weft_error* weft_trace_stop(weft_context* ctx) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    return context->trace().Stop();
  });
}

weft_error* weft_trace_write(weft_context* ctx, const char* path, size_t path_length,
                             weft_trace_format format) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(path, path_length));
    return WriteTrace(context->trace(), file, format);
  });
}

weft_error* weft_trace_report(weft_context* ctx, weft_trace_report_format format, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    if (format != WEFT_TRACE_REPORT_TEXT && format != WEFT_TRACE_REPORT_JSON)
      return UserError("format is ", static_cast<int>(format), "; there are 0 and 1");
    WEFT_ASSIGN_OR_RETURN(const TraceRecord record, context->trace().Record());
    TraceSummary summary = Summarize(record);
    summary.machine = MachineOf(*context);
    return MakeBlob(format == WEFT_TRACE_REPORT_JSON ? TraceJsonOf(summary) : TraceTextOf(summary), out);
  });
}

void weft_span_begin(weft_context* ctx, const char* name, size_t length) noexcept {
  const Pin<Context> context = Find(ctx);
  if (!context) return;
  if (name == nullptr) length = 0;
  if (length == WEFT_STRLEN) length = std::strlen(name);
  // A length that nobody can mean is not read: the span has no name, and its end will come all the same.
  BeginSpan(context->trace().id(), length <= kMostBytes ? std::string_view(name, length) : "");
}

void weft_span_end(weft_context* ctx) noexcept {
  const Pin<Context> context = Find(ctx);
  if (context) EndSpan(context->trace().id());
}

}  // extern "C"
