// Samples, spans and the formats of a snapshot.
#include <algorithm>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/runtime/metrics.h"
#include "src/runtime/trace.h"

namespace weft {
namespace {

TEST(Samples, CountAddAndGivePercentilesByNearestRank) {
  Samples samples;
  EXPECT_EQ(samples.Summarize().count, 0);
  for (int64_t value = 100; value >= 1; --value) samples.Add(value);
  const SampleSummary summary = samples.Summarize();
  EXPECT_EQ(summary.count, 100);
  EXPECT_EQ(summary.sum, 5050);
  EXPECT_THAT(summary.percentiles, testing::ElementsAre(1, 5, 10, 20, 50, 80, 90, 95, 99));
}

TEST(Samples, KeepTheNewestForPercentilesAndCountAll) {
  Samples samples;
  for (size_t i = 0; i < Samples::kKept; ++i) samples.Add(1'000'000);
  for (size_t i = 0; i < Samples::kKept; ++i) samples.Add(7);
  const SampleSummary summary = samples.Summarize();
  EXPECT_EQ(summary.count, 2 * static_cast<int64_t>(Samples::kKept));
  EXPECT_THAT(summary.percentiles, testing::Each(7));
}

TEST(Samples, ThreadsLoseNone) {
  Samples samples;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) samples.Add(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(samples.Summarize().count, 40'000);
  EXPECT_EQ(samples.Summarize().sum, 120'000);
}

TEST(Trace, KeepsNothingUntilItIsStarted) {
  Trace trace;
  { const SpanScope span(trace, "early"); }
  trace.Start(8);
  { const SpanScope span(trace, "within"); }
  const std::vector<TraceSpan> spans = trace.Stop();
  { const SpanScope span(trace, "late"); }
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_STREQ(spans[0].name, "within");
  EXPECT_LE(spans[0].start, spans[0].end);
  EXPECT_TRUE(trace.Stop().empty());
}

TEST(Trace, KeepsTheNewestInOrderAndTellsThreadsApart) {
  Trace trace;
  trace.Start(3);
  for (int64_t i = 0; i < 5; ++i) trace.Add("here", i, i + 1);
  std::thread([&] { trace.Add("there", 5, 6); }).join();
  const std::vector<TraceSpan> spans = trace.Stop();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].start, 3);
  EXPECT_EQ(spans[1].start, 4);
  EXPECT_EQ(spans[2].start, 5);
  EXPECT_EQ(spans[0].thread, spans[1].thread);
  EXPECT_NE(spans[1].thread, spans[2].thread);
}

Snapshot Small() {
  Snapshot snapshot;
  snapshot.counters = {{"launches", 2}, {"cuts", 0}};
  snapshot.samples = {{"run_nanoseconds", {2, 30, {10, 10, 10, 10, 10, 20, 20, 20, 20}}}, {"compile_nanoseconds", {}}};
  snapshot.memory = {{.device = "cpu:0", .kind = "a \"kind\"", .bytes_in_use = 64, .peak_bytes = 128, .bytes_limit = 0}};
  snapshot.process = {{"live_tensors", 1}, {"bad_releases", 0}};
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
            "\"p1\": 10, \"p5\": 10, \"p10\": 10, \"p20\": 10, \"p50\": 10, \"p80\": 20, \"p90\": 20, \"p95\": 20, \"p99\": 20}, "
            "\"compile_nanoseconds\": {\"count\": 0, \"sum\": 0, \"p1\": 0, \"p5\": 0, \"p10\": 0, \"p20\": 0, \"p50\": 0, "
            "\"p80\": 0, \"p90\": 0, \"p95\": 0, \"p99\": 0}}, \"memory\": [{\"device\": \"cpu:0\", \"bytes_in_use\": 64, "
            "\"peak_bytes\": 128, \"bytes_limit\": 0, \"kind\": \"a \\\"kind\\\"\", \"attributes\": {}}], \"process\": "
            "{\"live_tensors\": 1, \"bad_releases\": 0}}");
}

TEST(Metrics, ClearBeginsCountersAndSamplesAgain) {
  Metrics metrics;
  metrics.Add(Counter::kLaunches, 4);
  metrics.Add(Sample::kRun, 5);
  metrics.Clear();
  EXPECT_EQ(metrics.Get(Counter::kLaunches), 0);
  EXPECT_EQ(metrics.Summarize(Sample::kRun).count, 0);
}

}  // namespace
}  // namespace weft
