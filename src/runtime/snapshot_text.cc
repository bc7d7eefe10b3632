// The report for people.
#include "absl/strings/str_cat.h"
#include "src/runtime/snapshot.h"

namespace weft {
namespace {

void AppendCounters(const std::vector<Snapshot::Counter>& all, std::string* text) {
  for (const Snapshot::Counter& counter : all) {
    if (counter.value != 0) absl::StrAppend(text, counter.name, ": ", counter.value, "\n");
  }
}

void AppendSamples(const Snapshot& snapshot, std::string* text) {
  for (const Snapshot::Sample& sample : snapshot.samples) {
    const SampleSummary& summary = sample.summary;
    if (summary.count == 0) continue;
    absl::StrAppend(text, sample.name, ": ", summary.count, " samples, sum ", summary.sum);
    for (size_t i = 0; i < kPercentiles.size(); ++i)
      absl::StrAppend(text, i == 0 ? "; " : ", ", kPercentiles[i], "% ", summary.percentiles[i]);
    absl::StrAppend(text, "\n");
  }
}

}  // namespace

void Snapshot::AddOperation(std::string_view name, int64_t count) {
  Counter& counter = counters.emplace_back();
  counter.name = absl::StrCat(kOfOperation, name);
  counter.meaning = "times that callers recorded this operation";
  counter.torch_xla = absl::StrCat(kOfOperationXla, name);
  counter.value = count;
}

std::string ReportOf(const Snapshot& snapshot) {
  std::string text;
  AppendCounters(snapshot.counters, &text);
  AppendSamples(snapshot, &text);
  for (const Snapshot::Memory& memory : snapshot.memory) {
    absl::StrAppend(&text, "memory ", memory.device, ": ", memory.bytes_in_use, " bytes in use, peak ",
                    memory.peak_bytes, "\n");
  }
  AppendCounters(snapshot.process, &text);
  if (!snapshot.last_replay_miss.empty()) {
    absl::StrAppend(&text, "last step that was built and not replayed: ", snapshot.last_replay_miss, "\n");
  }
  return text;
}

}  // namespace weft
