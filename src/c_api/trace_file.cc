// See trace_file.h.
#include "src/c_api/trace_file.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "serialization/atomic_file.h"
#include "src/data/gzip.h"
#include "src/runtime/io.h"
#include "src/runtime/status.h"

namespace weft::c_api {

namespace {

absl::Status Write(const std::string& path, std::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(AtomicFile file,
                        AtomicFile::Create(PosixFileSystem(), path, {.durability = Durability::kProcess}));
  WEFT_RETURN_IF_ERROR(file.file().Write(std::as_bytes(std::span(bytes))));
  return file.Commit();
}

using Render = std::string (*)(const TraceSummary& summary);
constexpr std::pair<std::string_view, Render> kReports[] = {
    {".txt", TraceTextOf}, {"report.json", TraceJsonOf}, {".svg", TraceSvgOf}};

}  // namespace

absl::Status WriteTrace(const Trace& trace, const std::string& path, weft_trace_format format) {
  if (format < WEFT_TRACE_CHROME || format > WEFT_TRACE_PERFETTO)
    return UserError("format is ", static_cast<int>(format), "; there are 0 to 2");
  WEFT_ASSIGN_OR_RETURN(const TraceRecord record, trace.Record());
  if (format == WEFT_TRACE_PERFETTO) return Write(path, PerfettoOf(record));
  std::string bytes = ChromeOf(record);
  if (format == WEFT_TRACE_CHROME) {
    WEFT_ASSIGN_OR_RETURN(bytes, Gzip(bytes));
  }
  return Write(path, bytes);
}

absl::Status WriteTraceFile(const Trace& trace, const std::string& path, const Machine& machine) {
  if (absl::EndsWith(path, ".pftrace") || absl::EndsWith(path, ".perfetto-trace")) {
    return WriteTrace(trace, path, WEFT_TRACE_PERFETTO);
  }
  for (const auto& [end, render] : kReports) {
    if (!absl::EndsWith(path, end)) continue;
    WEFT_ASSIGN_OR_RETURN(const TraceRecord record, trace.Record());
    TraceSummary summary = Summarize(record);
    summary.machine = machine;
    return Write(path, render(summary));
  }
  return WriteTrace(trace, path, absl::EndsWith(path, ".json") ? WEFT_TRACE_CHROME_JSON : WEFT_TRACE_CHROME);
}

absl::StatusOr<TraceSteps> TraceStepsOf(std::string_view text) {
  TraceSteps steps;
  if (text.empty()) return steps;
  const size_t colon = text.find(':');
  const bool two = colon != std::string_view::npos && absl::SimpleAtoi(text.substr(0, colon), &steps.skip) &&
                   absl::SimpleAtoi(text.substr(colon + 1), &steps.count);
  if (!two || steps.skip < 0 || steps.count < 1) {
    return UserError("option trace_steps is '", text,
                     "'; it must be SKIP:COUNT, such as 10:3 for three steps after ten");
  }
  return steps;
}

TraceFile::TraceFile(std::string path, TraceSteps steps, int64_t bytes, std::shared_ptr<Trace> trace, Warn warn)
    : path_(std::move(path)), bytes_(bytes), trace_(std::move(trace)), warn_(std::move(warn)), left_(steps) {
  if (steps.skip == 0) Begin();
}

void TraceFile::Begin() {
  const absl::Status started = trace_->Start(bytes_);
  // A trace started by hand goes into the same record.
  if (!started.ok() && !absl::IsFailedPrecondition(started)) warn_(std::string(started.message()));
}

bool TraceFile::IsReport() const {
  return std::ranges::any_of(kReports, [&](const auto& report) { return absl::EndsWith(path_, report.first); });
}

bool TraceFile::IsLastStep() {
  MutexLock lock(mutex_);
  if (ended_) return false;
  if (left_.skip > 0) {
    if (--left_.skip == 0) Begin();
    return false;
  }
  return left_.count > 0 && --left_.count == 0;
}

void TraceFile::End() {
  MutexLock lock(mutex_);
  if (ended_) return;
  ended_ = true;
  trace_->Stop().IgnoreError();  // somebody may have stopped it by hand
  const absl::Status written = WriteTraceFile(*trace_, path_, machine_);
  if (absl::IsFailedPrecondition(written) && left_.skip > 0) {
    warn_(absl::StrCat("'", path_,
                       "' is not written: the context has ended before the first step that trace_steps asks for"));
  } else if (!written.ok()) {
    warn_(absl::StrCat("the trace is lost: ", written.message()));
  }
}

}  // namespace weft::c_api
