// OpenMetrics 1.0, which Prometheus and OpenTelemetry read.
#include <charconv>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/runtime/snapshot.h"

namespace weft {
namespace {

// A label's value: backslash, quote and line feed are escaped.
std::string Label(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

// weft_compile_seconds of compile_nanoseconds: the unit is the last word of a family's name.
struct Family {
  std::string name, unit;
};
Family FamilyOf(const Snapshot::Metric& metric) {
  std::string name = absl::StrCat("weft_", absl::StrReplaceAll(metric.name, {{"::", "_"}}));
  if (metric.unit == Unit::kNumber) return {std::move(name), ""};
  const bool time = metric.unit == Unit::kNanoseconds;
  const std::string_view unit = time ? "seconds" : "bytes", own = time ? "nanoseconds" : "bytes";
  const size_t at = name.find(own);
  if (at != std::string::npos) name.erase(at == 0 ? 0 : at - 1, own.size() + 1);
  return {absl::StrCat(name, "_", unit), std::string(unit)};
}

void Head(const Family& family, std::string_view type, std::string_view help, std::string* out) {
  absl::StrAppend(out, "# TYPE ", family.name, " ", type, "\n");
  if (!family.unit.empty()) absl::StrAppend(out, "# UNIT ", family.name, " ", family.unit, "\n");
  absl::StrAppend(out, "# HELP ", family.name, " ", help, "\n");
}

// Times are counted in nanoseconds and told in seconds, exactly.
std::string Value(const Family& family, int64_t value) {
  if (family.unit != "seconds") return absl::StrCat(value);
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return absl::StrCat(value < 0 ? "-" : "", size / 1000000000, ".", absl::Dec(size % 1000000000, absl::kZeroPad9));
}

// The bounds of a unit's buckets: every second power of two, from a microsecond to a minute, 1 to 2^40 bytes, 1 to 2^30.
struct Bounds {
  size_t first, last;
};
Bounds BoundsOf(const Family& family) {
  if (family.unit == "seconds") return {10, 36};
  return {0, family.unit == "bytes" ? size_t{40} : size_t{30}};
}

// A bound as OpenMetrics spells a float: the shortest decimal that is it.
std::string BoundText(const Family& family, size_t power) {
  const double bound = static_cast<double>(uint64_t{1} << power) / (family.unit == "seconds" ? 1e9 : 1.0);
  char text[40];
  std::string out(text, std::to_chars(text, text + sizeof text, bound).ptr);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

// `label`: name="…" of a caller's metric, or nothing.
void AppendHistogram(const Family& family, const SampleSummary& summary, const std::string& label, std::string* out) {
  const auto [first, last] = BoundsOf(family);
  const std::string labels = absl::StrCat("{", label, label.empty() ? "" : ",", "le=\"");
  int64_t below = 0;
  for (size_t i = 0; i <= last; ++i) {
    below += summary.buckets[i];
    if (i < first || (i - first) % 2 != 0) continue;
    absl::StrAppend(out, family.name, "_bucket", labels, BoundText(family, i), "\"} ", below, "\n");
  }
  // The buckets may be ahead of the count, or behind it, while others add.
  for (size_t i = last + 1; i < kBuckets; ++i) below += summary.buckets[i];
  absl::StrAppend(out, family.name, "_bucket", labels, "+Inf\"} ", below, "\n");
  const std::string own = label.empty() ? "" : absl::StrCat("{", label, "}");
  absl::StrAppend(out, family.name, "_count", own, " ", below, "\n", family.name, "_sum", own, " ",
                  Value(family, summary.sum), "\n");
}

bool IsOfOperation(const Snapshot::Metric& metric) {
  return !metric.of_caller() && absl::StartsWith(metric.name, kOfOperation);
}

// One family, whose label is the operation.
void AppendOperations(const Snapshot& snapshot, std::string* out) {
  bool first = true;
  for (const Snapshot::Counter& counter : snapshot.counters) {
    if (!IsOfOperation(counter)) continue;
    if (std::exchange(first, false)) Head({"weft_op", ""}, "counter", counter.meaning, out);
    absl::StrAppend(out, "weft_op_total{op=", Label(std::string_view(counter.name).substr(kOfOperation.size())), "} ",
                    counter.value, "\n");
  }
}

std::string LabelOf(const Snapshot::Metric& metric) { return absl::StrCat("name=", Label(metric.name)); }

// All of a caller's counters are one family, all samples of a unit another: their names are labels.
void AppendOfCaller(const Snapshot& snapshot, std::string* out) {
  bool first = true;
  for (const Snapshot::Counter& counter : snapshot.counters) {
    if (!counter.of_caller()) continue;
    if (std::exchange(first, false)) Head({"weft_named", ""}, "gauge", "counters of the caller's own", out);
    absl::StrAppend(out, "weft_named{", LabelOf(counter), "} ", counter.value, "\n");
  }
  const Family families[] = {
      {"weft_named_values", ""}, {"weft_named_seconds", "seconds"}, {"weft_named_bytes", "bytes"}};
  for (const Unit unit : {Unit::kNumber, Unit::kNanoseconds, Unit::kBytes}) {
    const Family& family = families[static_cast<size_t>(unit)];
    first = true;
    for (const Snapshot::Sample& sample : snapshot.samples) {
      if (!sample.of_caller() || sample.unit != unit) continue;
      if (std::exchange(first, false)) Head(family, "histogram", "samples of the caller's own", out);
      AppendHistogram(family, sample.summary, LabelOf(sample), out);
    }
  }
}

void AppendMemory(const Snapshot& snapshot, std::string* out) {
  if (snapshot.memory.empty()) return;
  const auto gauge = [&](const char* name, const char* help, int64_t Snapshot::Memory::* member) {
    const Family family = {absl::StrCat("weft_device_memory_", name, "_bytes"), "bytes"};
    Head(family, "gauge", help, out);
    for (const Snapshot::Memory& memory : snapshot.memory) {
      absl::StrAppend(out, family.name, "{device=", Label(memory.device), ",kind=", Label(memory.kind), "} ",
                      memory.*member, "\n");
    }
  };
  gauge("in_use", "memory in use", &Snapshot::Memory::bytes_in_use);
  gauge("peak", "the most that was in use", &Snapshot::Memory::peak_bytes);
  gauge("limit", "how much there is; 0: unknown", &Snapshot::Memory::bytes_limit);
}

}  // namespace

std::string OpenMetricsOf(const Snapshot& snapshot) {
  std::string out;
  for (const Snapshot::Counter& counter : snapshot.counters) {
    if (counter.of_caller() || IsOfOperation(counter)) continue;
    const Family family = FamilyOf(counter);
    Head(family, "counter", counter.meaning, &out);
    absl::StrAppend(&out, family.name, "_total ", Value(family, counter.value), "\n");
  }
  AppendOperations(snapshot, &out);
  for (const Snapshot::Sample& sample : snapshot.samples) {
    if (sample.of_caller()) continue;
    const Family family = FamilyOf(sample);
    Head(family, "histogram", sample.meaning, &out);
    AppendHistogram(family, sample.summary, "", &out);
  }
  for (const Snapshot::Counter& counter : snapshot.process) {
    const Family family = FamilyOf(counter);
    Head(family, "gauge", counter.meaning, &out);
    absl::StrAppend(&out, family.name, " ", counter.value, "\n");
  }
  AppendOfCaller(snapshot, &out);
  AppendMemory(snapshot, &out);
  return out + "# EOF\n";
}

}  // namespace weft
