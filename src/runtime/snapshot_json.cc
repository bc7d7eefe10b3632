// The report for programs.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/runtime/json_text.h"
#include "src/runtime/snapshot.h"

namespace weft {
namespace {

std::string Object(const std::vector<Snapshot::Named>& all) {
  return absl::StrCat("{",
                      absl::StrJoin(all, ", ",
                                    [](std::string* out, const Snapshot::Named& one) {
                                      absl::StrAppend(out, JsonText(one.first), ": ", one.second);
                                    }),
                      "}");
}

void AppendSummary(std::string* out, const std::pair<std::string_view, SampleSummary>& one) {
  const auto& [name, summary] = one;
  absl::StrAppend(out, JsonText(name), ": {\"count\": ", summary.count, ", \"sum\": ", summary.sum);
  for (size_t i = 0; i < kPercentiles.size(); ++i)
    absl::StrAppend(out, ", \"p", kPercentiles[i], "\": ", summary.percentiles[i]);
  absl::StrAppend(out, "}");
}

void AppendMemory(std::string* out, const Snapshot::Memory& memory) {
  absl::StrAppend(out, "{\"device\": ", JsonText(memory.device), ", \"bytes_in_use\": ", memory.bytes_in_use,
                  ", \"peak_bytes\": ", memory.peak_bytes, ", \"bytes_limit\": ", memory.bytes_limit,
                  ", \"kind\": ", JsonText(memory.kind), ", \"attributes\": ", memory.attributes, "}");
}

}  // namespace

std::string JsonOf(const Snapshot& snapshot) {
  return absl::StrCat("{\"counters\": ", Object(snapshot.counters), ", \"samples\": {",
                      absl::StrJoin(snapshot.samples, ", ", AppendSummary), "}, \"memory\": [",
                      absl::StrJoin(snapshot.memory, ", ", AppendMemory), "], \"process\": ", Object(snapshot.process),
                      snapshot.last_replay_miss.empty()
                          ? ""
                          : absl::StrCat(", \"last_replay_miss\": ", JsonText(snapshot.last_replay_miss)),
                      "}");
}

}  // namespace weft
