// A context's trace in a file: the options trace_file, trace_steps and trace_bytes, and what weft_trace_write writes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "src/runtime/mutex.h"
#include "src/runtime/trace_render.h"
#include "weft_metrics.h"

namespace weft::c_api {

// Writes the spans that the trace holds as a file, which appears whole or not at all.
absl::Status WriteTrace(const Trace& trace, const std::string& path, weft_trace_format format);
// The same by the end of its name: Perfetto's messages of .pftrace and .perfetto-trace; weft_trace_report's text of .txt, its JSON of
// report.json, a picture of its kernels of .svg; Chrome's JSON of any other .json, and gzipped of any other name.
absl::Status WriteTraceFile(const Trace& trace, const std::string& path, const Machine& machine);

// Barriers that are let by, and how many are traced behind them; -1: all.
struct TraceSteps {
  int64_t skip = 0, count = -1;
};
// The option trace_steps. INVALID_ARGUMENT if it is neither empty nor SKIP:COUNT.
absl::StatusOr<TraceSteps> TraceStepsOf(std::string_view text);

// Thread rule: any thread.
class TraceFile {
 public:
  using Warn = std::function<void(std::string text)>;
  // Begins at once if no steps are to be skipped.
  TraceFile(std::string path, TraceSteps steps, int64_t bytes, std::shared_ptr<Trace> trace, Warn warn);
  // The machine that reports name. Called before the file is others'.
  void SetMachine(Machine machine) { machine_ = std::move(machine); }
  bool IsReport() const;
  // Counts a barrier, and begins where enough have been let by. True for the one behind which the trace shall end.
  bool IsLastStep();
  // Writes it, unless that has been done. A trace that cannot be written is lost with one warning.
  void End();

 private:
  void Begin();

  const std::string path_;
  const int64_t bytes_;
  const std::shared_ptr<Trace> trace_;
  const Warn warn_;
  Machine machine_;
  Mutex mutex_;
  TraceSteps left_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::c_api
