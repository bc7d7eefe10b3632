// Samples and the formats of a snapshot.
#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/runtime/metrics.h"

namespace weft {
namespace {

TEST(Samples, CountAddAndGivePercentilesByNearestRank) {
  Samples samples;
  EXPECT_EQ(samples.Summarize().count, 0);
  for (int64_t value = 100; value >= 1; --value) samples.Add(value, value);
  const SampleSummary summary = samples.Summarize();
  EXPECT_EQ(summary.count, 100);
  EXPECT_EQ(summary.sum, 5050);
  EXPECT_THAT(summary.percentiles, testing::ElementsAre(1, 5, 10, 20, 50, 80, 90, 95, 99));
  EXPECT_EQ(summary.least, 1);
  EXPECT_EQ(summary.largest, 100);
  EXPECT_EQ(summary.first_time, 1);
  EXPECT_EQ(summary.last_time, 100);
}

TEST(Samples, KeepTheNewestForPercentilesAndCountAll) {
  Samples samples;
  for (size_t i = 0; i < Samples::kKept; ++i) samples.Add(1'000'000, 1);
  for (size_t i = 0; i < Samples::kKept; ++i) samples.Add(7, 2);
  const SampleSummary summary = samples.Summarize();
  EXPECT_EQ(summary.count, 2 * static_cast<int64_t>(Samples::kKept));
  EXPECT_THAT(summary.percentiles, testing::Each(7));
  EXPECT_EQ(summary.largest, 1'000'000);
  EXPECT_EQ(summary.first_time, 2);
}

TEST(Samples, ThreadsLoseNone) {
  Samples samples;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) samples.Add(3, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(samples.Summarize().count, 40'000);
  EXPECT_EQ(samples.Summarize().sum, 120'000);
}

Snapshot Small() {
  Snapshot snapshot;
  snapshot.Add({"launches", "programs that were launched"}, 2);
  snapshot.Add({"cuts", "graphs that were cut"}, 0);
  Samples run;
  run.Add(10, 1'000'000'000);
  run.Add(20, 3'000'000'000);
  snapshot.Add({"run_nanoseconds", "one launch", Unit::kNanoseconds, "ExecuteTime"}, run.Summarize());
  snapshot.Add({"compile_nanoseconds", "making one program", Unit::kNanoseconds, "CompileTime"}, SampleSummary{});
  snapshot.memory = {{.device = "cpu:0", .kind = "a \"kind\"", .bytes_in_use = 64, .peak_bytes = 128, .bytes_limit = 0}};
  snapshot.AddOfProcess({"live_tensors", "handles of tensors that live"}, 1);
  snapshot.AddOfProcess({"bad_releases", "handles that were released wrongly"}, 0);
  return snapshot;
}

TEST(Snapshot, TextLeavesOutWhatIsZero) {
  EXPECT_EQ(ReportOf(Small()),
            "launches: 2\n"
            "run_nanoseconds: 2 samples, sum 30; 1% 10, 5% 10, 10% 10, 20% 10, 50% 10, 80% 20, 90% 20, 95% 20, 99% 20\n"
            "memory cpu:0: 64 bytes in use, peak 128\n"
            "live_tensors: 1\n");
}

TEST(Snapshot, JsonHasEverything) {
  EXPECT_EQ(JsonOf(Small()),
            "{\"counters\": {\"launches\": 2, \"cuts\": 0}, \"samples\": {\"run_nanoseconds\": {\"count\": 2, \"sum\": 30, "
            "\"p1\": 10, \"p5\": 10, \"p10\": 10, \"p20\": 10, \"p50\": 10, \"p80\": 20, \"p90\": 20, \"p95\": 20, \"p99\": 20, "
            "\"least\": 10, \"largest\": 20}, "
            "\"compile_nanoseconds\": {\"count\": 0, \"sum\": 0, \"p1\": 0, \"p5\": 0, \"p10\": 0, \"p20\": 0, \"p50\": 0, "
            "\"p80\": 0, \"p90\": 0, \"p95\": 0, \"p99\": 0, \"least\": 0, \"largest\": 0}}, \"memory\": [{\"device\": \"cpu:0\", \"bytes_in_use\": 64, "
            "\"peak_bytes\": 128, \"bytes_limit\": 0, \"kind\": \"a \\\"kind\\\"\", \"attributes\": {}}], \"process\": "
            "{\"live_tensors\": 1, \"bad_releases\": 0}}");
}

TEST(Metrics, ClearBeginsCountersAndSamplesAgain) {
  Metrics metrics;
  metrics.Add(Counter::kLaunches, 4);
  metrics.Add(Sample::kRun, 5, 1);
  ASSERT_TRUE(metrics.AddNamed("aten::nonzero", 33).ok());
  metrics.Clear();
  EXPECT_EQ(metrics.Get(Counter::kLaunches), 0);
  EXPECT_EQ(metrics.Summarize(Sample::kRun).count, 0);
  EXPECT_FALSE(metrics.Get("aten::nonzero").has_value());
}

TEST(Snapshot, XlaReportIsPyTorchXlas) {
  Snapshot snapshot = Small();
  snapshot.Add({"aten::nonzero", ""}, 33);
  Samples compile;
  compile.Add(1'032'778, 0);
  compile.Add(369'400'713'223, 0);
  snapshot.samples[1].summary = compile.Summarize();
  Samples inbound;
  for (int i = 0; i < 4; ++i) inbound.Add(1536, 5);
  snapshot.Add({"read_bytes", "of one read", Unit::kBytes, "InboundData"}, inbound.Summarize());
  EXPECT_EQ(XlaReportOf(snapshot, true),
            "Metric: CompileTime\n  TotalSamples: 2\n  Counter: 06m09s401ms746.001us\n  Percentiles: 1%=001ms32.778us; "
            "5%=001ms32.778us; 10%=001ms32.778us; 20%=001ms32.778us; 50%=06m09s400ms713.223us; 80%=06m09s400ms713.223us; "
            "90%=06m09s400ms713.223us; 95%=06m09s400ms713.223us; 99%=06m09s400ms713.223us\n"
            "Metric: ExecuteTime\n  TotalSamples: 2\n  Counter: 0.030us\n  ValueRate: 0.015us / second\n  Rate: 1 / second\n"
            "  Percentiles: 1%=0.010us; 5%=0.010us; 10%=0.010us; 20%=0.010us; 50%=0.020us; 80%=0.020us; 90%=0.020us; "
            "95%=0.020us; 99%=0.020us\n"
            "Metric: InboundData\n  TotalSamples: 4\n  Counter: 6.00KB\n  Percentiles: 1%=1.50KB; 5%=1.50KB; 10%=1.50KB; "
            "20%=1.50KB; 50%=1.50KB; 80%=1.50KB; 90%=1.50KB; 95%=1.50KB; 99%=1.50KB\n"
            "Counter: aten::nonzero\n  Value: 33\nCounter: weft::launches\n  Value: 2\nCounter: weft::live_tensors\n  Value: 1\n");
  const std::string today = XlaReportOf(snapshot, false);
  EXPECT_THAT(today, testing::HasSubstr("  Accumulator: 06m09s401ms746.001us\n"));
  EXPECT_THAT(today, testing::HasSubstr("1%=001ms032.778us; "));
  EXPECT_THAT(today, testing::HasSubstr("  Accumulator: 000.030us\n  ValueRate: 000.015us / second\n"));
}

TEST(Snapshot, TimesOfTheXlaReportAreCutOffAtEveryPart) {
  for (const auto& [nanoseconds, text] : {std::pair<int64_t, const char*>{1'600'000, "001ms600.000us"},
                                          {1'600'000'000, "01s600ms000.000us"},
                                          {59'700'000'000, "59s700ms000.000us"},
                                          {90'061'000'000'001, "01d01h01m01s000ms000.001us"},
                                          {0, "000.000us"}}) {
    Snapshot snapshot;
    Samples samples;
    samples.Add(nanoseconds, 0);
    snapshot.Add({"compile_nanoseconds", "", Unit::kNanoseconds}, samples.Summarize());
    EXPECT_THAT(XlaReportOf(snapshot, false), testing::HasSubstr(absl::StrCat("  Accumulator: ", text, "\n")));
  }
}

TEST(Snapshot, OpenMetricsNamesUnitsAndEnds) {
  Snapshot snapshot = Small();
  snapshot.Add({"aten::\"x\\\n", ""}, 33);
  const std::string text = OpenMetricsOf(snapshot);
  EXPECT_THAT(text, testing::StartsWith("# TYPE weft_launches counter\n# HELP weft_launches programs that were launched\nweft_launches_total 2\n"));
  EXPECT_THAT(text, testing::HasSubstr("# TYPE weft_run_seconds histogram\n# UNIT weft_run_seconds seconds\n"));
  EXPECT_THAT(text, testing::HasSubstr("weft_run_seconds_bucket{le=\"1.024e-06\"} 2\n"));
  EXPECT_THAT(text, testing::HasSubstr("weft_run_seconds_bucket{le=\"68.719476736\"} 2\nweft_run_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, testing::HasSubstr("weft_run_seconds_count 2\nweft_run_seconds_sum 0.000000030\n"));
  EXPECT_THAT(text, testing::HasSubstr("weft_named{name=\"aten::\\\"x\\\\\\n\"} 33\n"));
  EXPECT_THAT(text, testing::HasSubstr("weft_device_memory_in_use_bytes{device=\"cpu:0\",kind=\"a \\\"kind\\\"\"} 64\n"));
  EXPECT_THAT(text, testing::EndsWith("\n# EOF\n"));
}

// No two families have one name, nor is one's name another's with an ending that OpenMetrics gives to a family's lines.
TEST(Snapshot, OpenMetricsHasNoFamilyTwice) {
  Metrics metrics;
  EXPECT_TRUE(metrics.AddNamed("mine", 1).ok());
  EXPECT_TRUE(metrics.Record("values", Unit::kNumber, 1).ok());
  EXPECT_TRUE(metrics.Record("times", Unit::kNanoseconds, 1).ok());
  EXPECT_TRUE(metrics.Record("sizes", Unit::kBytes, 1).ok());
  Snapshot snapshot;
  metrics.AddTo(&snapshot);
  std::set<std::string> names;
  size_t families = 0;
  for (std::string_view line : absl::StrSplit(OpenMetricsOf(snapshot), '\n')) {
    if (!absl::ConsumePrefix(&line, "# TYPE ")) continue;
    ++families;
    const std::string name(line.substr(0, line.find(' ')));
    for (const char* ending : {"", "_total", "_created", "_bucket", "_count", "_sum", "_info"}) {
      EXPECT_TRUE(names.insert(name + ending).second) << name << ending;
    }
  }
  EXPECT_GT(families, 60u);
}

// Each value is in the bucket of the least bound that is not below it, and in all behind that.
TEST(Snapshot, BucketsOfOpenMetricsAreThoseOfTheirBounds) {
  Samples samples;
  for (const int64_t value : {int64_t{-3}, int64_t{0}, int64_t{1}, int64_t{1024}, int64_t{1025}, int64_t{4096}, int64_t{4097},
                              std::numeric_limits<int64_t>::max()}) {
    samples.Add(value, 0);
  }
  Snapshot snapshot;
  snapshot.Add({"read_nanoseconds", "reads", Unit::kNanoseconds}, samples.Summarize());
  snapshot.Add({"read_bytes", "what reads copied", Unit::kBytes}, samples.Summarize());
  const std::string text = OpenMetricsOf(snapshot);
  for (const char* line : {"weft_read_seconds_bucket{le=\"1.024e-06\"} 4\n", "weft_read_seconds_bucket{le=\"4.096e-06\"} 6\n",
                           "weft_read_seconds_bucket{le=\"1.6384e-05\"} 7\n", "weft_read_seconds_bucket{le=\"+Inf\"} 8\n",
                           "weft_read_bytes_bucket{le=\"1.0\"} 3\n", "weft_read_bytes_bucket{le=\"256.0\"} 3\n",
                           "weft_read_bytes_bucket{le=\"1024.0\"} 4\n", "weft_read_bytes_bucket{le=\"4096.0\"} 6\n"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

TEST(Metrics, OfTheCallersOwnAreMadeWhenTheyAreNamed) {
  Metrics metrics;
  EXPECT_TRUE(metrics.AddNamed("aten::nonzero", 30).ok());
  EXPECT_TRUE(metrics.AddNamed("aten::nonzero", 3).ok());
  EXPECT_EQ(metrics.Get("aten::nonzero"), 33);
  EXPECT_TRUE(metrics.Record("loader", Unit::kNanoseconds, 5).ok());
  EXPECT_EQ(metrics.Summarize("loader")->sum, 5);
  EXPECT_EQ(metrics.AddNamed("loader", 1).message(), "metric 'loader' is a sample already");
  EXPECT_EQ(metrics.Record("loader", Unit::kBytes, 1).message(), "metric 'loader' is a sample already, of another unit");
  for (const char* name : {"", "two words", "tab\t", "launches", "CompileTime", "weft::x", "run_nanoseconds"}) {
    EXPECT_EQ(metrics.AddNamed(name, 1).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(metrics.AddNamed(std::string(257, 'x'), 1).code(), absl::StatusCode::kInvalidArgument);
  for (size_t i = 2; i < Metrics::kMostNamed; ++i) EXPECT_TRUE(metrics.AddNamed(absl::StrCat("n", i), 1).ok());
  EXPECT_EQ(metrics.AddNamed("one_more", 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(metrics.AddNamed("n2", 1).ok());
}

}  // namespace
}  // namespace weft
