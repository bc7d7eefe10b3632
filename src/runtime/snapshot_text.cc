// The report for people.
#include "absl/strings/str_cat.h"
#include "src/runtime/snapshot.h"

namespace weft {
namespace {

void AppendNamed(const std::vector<Snapshot::Named>& all, std::string* text) {
  for (const auto& [name, value] : all) {
    if (value != 0) absl::StrAppend(text, name, ": ", value, "\n");
  }
}

void AppendSamples(const Snapshot& snapshot, std::string* text) {
  for (const auto& [name, summary] : snapshot.samples) {
    if (summary.count == 0) continue;
    absl::StrAppend(text, name, ": ", summary.count, " samples, sum ", summary.sum);
    for (size_t i = 0; i < kPercentiles.size(); ++i)
      absl::StrAppend(text, i == 0 ? "; " : ", ", kPercentiles[i], "% ", summary.percentiles[i]);
    absl::StrAppend(text, "\n");
  }
}

}  // namespace

std::string ReportOf(const Snapshot& snapshot) {
  std::string text;
  AppendNamed(snapshot.counters, &text);
  AppendSamples(snapshot, &text);
  for (const Snapshot::Memory& memory : snapshot.memory) {
    absl::StrAppend(&text, "memory ", memory.device, ": ", memory.bytes_in_use, " bytes in use, peak ",
                    memory.peak_bytes, "\n");
  }
  AppendNamed(snapshot.process, &text);
  if (!snapshot.last_replay_miss.empty()) {
    absl::StrAppend(&text, "last step that was built and not replayed: ", snapshot.last_replay_miss, "\n");
  }
  return text;
}

}  // namespace weft
