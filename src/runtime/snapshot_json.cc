// The report for programs.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/runtime/json_text.h"
#include "src/runtime/snapshot.h"

namespace weft {
namespace {

std::string Object(const std::vector<Snapshot::Counter>& all) {
  return absl::StrCat("{",
                      absl::StrJoin(all, ", ",
                                    [](std::string* out, const Snapshot::Counter& one) {
                                      absl::StrAppend(out, JsonText(one.name), ": ", one.value);
                                    }),
                      "}");
}

void AppendSample(std::string* out, const Snapshot::Sample& sample) {
  const SampleSummary& summary = sample.summary;
  absl::StrAppend(out, JsonText(sample.name), ": {\"count\": ", summary.count, ", \"sum\": ", summary.sum);
  for (size_t i = 0; i < kPercentiles.size(); ++i)
    absl::StrAppend(out, ", \"p", kPercentiles[i], "\": ", summary.percentiles[i]);
  absl::StrAppend(out, ", \"least\": ", summary.least, ", \"largest\": ", summary.largest, "}");
}

void AppendMemory(std::string* out, const Snapshot::Memory& memory) {
  absl::StrAppend(out, "{\"device\": ", JsonText(memory.device), ", \"bytes_in_use\": ", memory.bytes_in_use,
                  ", \"peak_bytes\": ", memory.peak_bytes, ", \"bytes_limit\": ", memory.bytes_limit,
                  ", \"kind\": ", JsonText(memory.kind), ", \"attributes\": ", memory.attributes, "}");
}

std::string_view NameOf(Unit unit) {
  static constexpr std::string_view kNames[] = {"number", "nanoseconds", "bytes"};
  return kNames[static_cast<size_t>(unit)];
}

void AppendListed(const Snapshot::Metric& metric, std::string_view kind, std::string* out) {
  absl::StrAppend(out, out->size() > 1 ? ",\n " : "", "{\"name\": ", JsonText(metric.name), ", \"kind\": \"", kind,
                  "\", \"unit\": \"", NameOf(metric.unit), "\", \"meaning\": ", JsonText(metric.meaning));
  if (!metric.torch_xla.empty()) absl::StrAppend(out, ", \"torch_xla\": ", JsonText(metric.torch_xla));
  out->push_back('}');
}

}  // namespace

std::string MetricListOf(const Snapshot& snapshot) {
  std::string list = "[";
  for (const Snapshot::Counter& counter : snapshot.counters) AppendListed(counter, "counter", &list);
  for (const Snapshot::Sample& sample : snapshot.samples) AppendListed(sample, "sample", &list);
  for (const Snapshot::Counter& counter : snapshot.process) AppendListed(counter, "process", &list);
  return list + "]";
}

std::string JsonOf(const Snapshot& snapshot) {
  return absl::StrCat("{\"counters\": ", Object(snapshot.counters), ", \"samples\": {",
                      absl::StrJoin(snapshot.samples, ", ", AppendSample), "}, \"memory\": [",
                      absl::StrJoin(snapshot.memory, ", ", AppendMemory), "], \"process\": ", Object(snapshot.process),
                      snapshot.input.empty() ? "" : absl::StrCat(", \"input\": ", JsonText(snapshot.input)),
                      snapshot.last_replay_miss.empty()
                          ? ""
                          : absl::StrCat(", \"last_replay_miss\": ", JsonText(snapshot.last_replay_miss)),
                      "}");
}

}  // namespace weft
