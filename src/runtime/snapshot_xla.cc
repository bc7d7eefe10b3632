// PyTorch/XLA's metrics report, as torch_xla/csrc/runtime/metrics.cpp writes it.
#include <algorithm>
#include <charconv>
#include <map>

#include "absl/strings/str_cat.h"
#include "src/runtime/snapshot.h"

namespace weft {
namespace {

// Writes as printf's %.2f and %.6g do in the C locale.
std::string Number(double value, std::chars_format format, int precision) {
  char text[400];
  return {text, std::to_chars(text, text + sizeof(text), value, format, precision).ptr};
}

// d, h, m, s, ms and us, beginning with the first that is not zero: "06m09s401ms746.001us".
std::string TimeText(double nanoseconds, bool of_2019) {
  struct Part {
    const char* suffix;
    int64_t nanoseconds;
    absl::PadSpec width;
  };
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr Part kParts[] = {{"d", 86400 * kSecond, absl::kZeroPad2},
                             {"h", 3600 * kSecond, absl::kZeroPad2},
                             {"m", 60 * kSecond, absl::kZeroPad2},
                             {"s", kSecond, absl::kZeroPad2},
                             {"ms", 1'000'000, absl::kZeroPad3}};
  std::string text;
  // A program's own samples may add up to more than 292 years.
  constexpr double kMost = 0x1p63 - 1024;
  auto left = nanoseconds > 0 ? static_cast<int64_t>(std::min(nanoseconds, kMost)) : int64_t{0};
  for (const Part& part : kParts) {
    if (text.empty() && left < part.nanoseconds) continue;
    absl::StrAppend(&text, absl::Dec(left / part.nanoseconds, part.width), part.suffix);
    left %= part.nanoseconds;
  }
  absl::StrAppend(&text, absl::Dec(left / 1000, of_2019 ? absl::kNoPad : absl::kZeroPad3), ".",
                  absl::Dec(left % 1000, absl::kZeroPad3), "us");
  return text;
}

std::string BytesText(double bytes) {
  static constexpr const char* kSuffixes[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t i = 0;
  for (; i + 1 < std::size(kSuffixes) && bytes >= 1024; ++i) bytes /= 1024;
  return Number(bytes, std::chars_format::fixed, 2) + kSuffixes[i];
}

std::string ValueText(double value, Unit unit, bool of_2019) {
  if (unit == Unit::kNanoseconds) return TimeText(value, of_2019);
  return unit == Unit::kBytes ? BytesText(value) : Number(value, std::chars_format::fixed, 2);
}

// Rates and percentiles are of the samples that are kept, the sum is of all.
std::string SampleText(const std::string& name, const SampleSummary& summary, Unit unit, bool of_2019) {
  const auto text = [&](double value) { return ValueText(value, unit, of_2019); };
  std::string out = absl::StrCat("Metric: ", name, "\n  TotalSamples: ", summary.count, "\n  ",
                                 of_2019 ? "Counter: " : "Accumulator: ", text(static_cast<double>(summary.sum)), "\n");
  const double seconds = static_cast<double>(summary.last_time - summary.first_time) / 1e9;
  if (seconds > 0) {
    double kept = 0;
    for (const int64_t value : summary.newest) kept += static_cast<double>(value);
    absl::StrAppend(&out, "  ValueRate: ", text(kept / seconds), " / second\n");
    const double rate = static_cast<double>(summary.newest.size()) / seconds;
    absl::StrAppend(&out, "  Rate: ", Number(rate, std::chars_format::general, 6), " / second\n");
  }
  absl::StrAppend(&out, "  Percentiles: ");
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    const size_t at = summary.newest.size() * static_cast<size_t>(kPercentiles[i]) / 100;
    absl::StrAppend(&out, i == 0 ? "" : "; ", kPercentiles[i], "%=", text(static_cast<double>(summary.newest[at])));
  }
  return out + "\n";
}

std::string NameIn(const Snapshot::Metric& metric) {
  if (metric.of_caller()) return metric.name;
  return metric.torch_xla.empty() ? absl::StrCat("weft::", metric.name) : metric.torch_xla;
}

}  // namespace

std::string XlaReportOf(const Snapshot& snapshot, bool of_2019) {
  std::map<std::string, std::string> metrics, counters;
  for (const Snapshot::Sample& sample : snapshot.samples) {
    if (sample.summary.count == 0) continue;
    std::string name = NameIn(sample);
    std::string text = SampleText(name, sample.summary, sample.unit, of_2019);
    metrics.emplace(std::move(name), std::move(text));
  }
  for (const std::vector<Snapshot::Counter>* all : {&snapshot.counters, &snapshot.process}) {
    for (const Snapshot::Counter& counter : *all) {
      if (counter.value == 0) continue;
      std::string name = NameIn(counter);
      std::string text = absl::StrCat("Counter: ", name, "\n  Value: ", counter.value, "\n");
      counters.emplace(std::move(name), std::move(text));
    }
  }
  std::string report;
  for (const auto& [name, text] : metrics) report += text;
  for (const auto& [name, text] : counters) report += text;
  return report;
}

}  // namespace weft
