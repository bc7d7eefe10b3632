// Everything that a context counts, as one value that each format renders from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/runtime/samples.h"

namespace weft {

struct Snapshot {
  struct Memory {
    std::string device, kind;
    int64_t bytes_in_use = 0, peak_bytes = 0, bytes_limit = 0;  // a limit of 0: unknown
    std::string attributes = "{}";                              // the device's own, as a JSON object
  };
  using Named = std::pair<std::string_view, int64_t>;
  std::vector<Named> counters;
  std::vector<std::pair<std::string_view, SampleSummary>> samples;
  std::vector<Memory> memory;
  std::vector<Named> process;    // counted for the whole process
  std::string last_replay_miss;  // why a step was built that had begun as one before; empty: none was
};

// A line for each that is not zero: "programs_compiled: 2".
std::string ReportOf(const Snapshot& snapshot);
// {"counters": {…}, "samples": {…}, "memory": […], "process": {…}}, with everything, and "last_replay_miss": "…" if there was one.
std::string JsonOf(const Snapshot& snapshot);

}  // namespace weft
