// Everything that a context counts, as one value that each format renders from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/runtime/samples.h"

namespace weft {

// The facts about a metric, for its readers.
struct MetricInfo {
  std::string_view name;  // "programs_compiled"
  std::string_view meaning;
  Unit unit = Unit::kNumber;
  std::string_view torch_xla = "";  // what PyTorch/XLA calls the same; empty: it has none
};

struct Snapshot {
  struct Metric {
    std::string name;
    std::string_view meaning;  // empty: a metric of the caller's own
    Unit unit = Unit::kNumber;
    std::string torch_xla;
    bool of_caller() const { return meaning.empty(); }
  };
  struct Counter : Metric {
    int64_t value = 0;
  };
  struct Sample : Metric {
    SampleSummary summary;
  };
  struct Memory {
    std::string device, kind;
    int64_t bytes_in_use = 0, peak_bytes = 0, bytes_limit = 0;  // a limit of 0: unknown
    std::string attributes = "{}";                              // the device's own, as a JSON object
  };

  void Add(const MetricInfo& info, int64_t value) { counters.push_back({Described(info), value}); }
  void Add(const MetricInfo& info, SampleSummary summary) { samples.push_back({Described(info), std::move(summary)}); }
  // "op::matmul": how often callers recorded the operation.
  void AddOperation(std::string_view name, int64_t count);
  void AddOfProcess(const MetricInfo& info, int64_t value) { process.push_back({Described(info), value}); }

  std::vector<Counter> counters;
  std::vector<Sample> samples;
  std::vector<Memory> memory;
  std::vector<Counter> process;  // counted for the whole process
  std::string input;  // whether loaders or who reads from them waited longer, in words; empty: nothing was read
  std::string last_replay_miss;  // why a step was built that had begun as one before; empty: none was

 private:
  static Metric Described(const MetricInfo& info) {
    return {std::string(info.name), info.meaning, info.unit, std::string(info.torch_xla)};
  }
};

// The prefixes of operations' counters, here and in PyTorch/XLA's report.
inline constexpr std::string_view kOfOperation = "op::", kOfOperationXla = "xla::";

// A line for each that is not zero: "programs_compiled: 2".
std::string ReportOf(const Snapshot& snapshot);
// {"counters": {…}, "samples": {…}, "memory": […], "process": {…}}, with everything, "input": "…" if a
// loader gave out batches, and "last_replay_miss": "…" if there was one.
std::string JsonOf(const Snapshot& snapshot);
// PyTorch/XLA's metrics report: metrics, then counters, each by name, those of zero left out. A metric that it has a
// name for has that name, the caller's own have theirs, all others begin with "weft::". `of_2019` is the first report's
// spelling: "Counter:" in the place of "Accumulator:", and microseconds that are not padded. Parts of a time are cut
// off, not rounded as PyTorch/XLA does.
std::string XlaReportOf(const Snapshot& snapshot, bool of_2019);
// OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/): counters end in _total, times are in seconds, samples
// are histograms of all values with the same bounds in every report, memory is a gauge a device. Names of the caller's own are values of the label `name`.
std::string OpenMetricsOf(const Snapshot& snapshot);
// A JSON array of all: name, kind ("counter", "sample", "process"), unit ("number", "nanoseconds", "bytes"), meaning, and
// "torch_xla" where PyTorch/XLA has a name for it.
std::string MetricListOf(const Snapshot& snapshot);

}  // namespace weft
