// A trace of a device behind a plugin: the plugin's own profiler has a lane a device in it, on one clock with the callers' lanes.
#include <gmock/gmock.h>

#include "src/backends/pjrt/profiler.h"
#include "src/runtime/trace_render.h"
#include "tests/pjrt/fake_world.h"

namespace weft::pjrt {
namespace {

struct Traced {
  explicit Traced(const std::string& faults = "") {
    options.services.log = LogHook([this](LogLevel, std::string_view text) { warnings.emplace_back(text); });
    world = std::make_unique<World>(lazy::Options{}, Fake(faults, options));
  }
  // The trace of some steps.
  TraceRecord Run(int steps) {
    Trace& trace = *options.services.trace;
    EXPECT_TRUE(trace.Start(1 << 20).ok());
    for (int i = 0; i < steps; ++i) EXPECT_THAT(Step(*world), ElementsAre(6, 12));
    EXPECT_TRUE(trace.Stop().ok());
    return *trace.Record();
  }
  std::vector<std::string> warnings;
  Options options;
  std::unique_ptr<World> world;
};

std::vector<TraceSpan> DevicesSpans(const TraceRecord& record) {
  std::vector<TraceSpan> spans;
  for (const TraceSpan& span : record.spans) {
    if (record.threads[span.thread].name == "/device:FAKE:0 XLA Ops") spans.push_back(span);
  }
  return spans;
}

TEST(PjrtProfiler, ADevicesLaunchesAreALaneOnTheTracesClock) {
  Traced traced;
  Step(*traced.world);
  const TraceRecord record = traced.Run(3);
  const std::vector<TraceSpan> spans = DevicesSpans(record);
  ASSERT_EQ(spans.size(), 3u);
  for (const TraceSpan& span : spans) {
    EXPECT_EQ(span.name->text, "fusion.7");
    EXPECT_EQ(span.name->kind, SpanKind::kKernel);
    // Two readings of two clocks are not one: a millisecond is more than they lie apart.
    EXPECT_GT(span.start, record.start - 1'000'000);
    EXPECT_LT(span.end, record.end + 1'000'000);
    EXPECT_LE(span.start, span.end);
  }
  EXPECT_THAT(traced.warnings, ::testing::IsEmpty());
  // Reports have it among the kernels, files as a lane.
  const TraceSummary summary = Summarize(record);
  ASSERT_EQ(summary.kernels.size(), 1u);
  EXPECT_EQ(summary.kernels[0].calls, 3);
  EXPECT_THAT(ChromeOf(record), AllOf(HasSubstr("/device:FAKE:0 XLA Ops"), HasSubstr("fusion.7")));
  // The next trace has none of the last.
  EXPECT_EQ(DevicesSpans(traced.Run(1)).size(), 1u);
}

TEST(PjrtProfiler, ATraceThatWasOnBeforeThePluginHasItsLane) {
  Options options;
  ASSERT_TRUE(options.services.trace->Start(1 << 20).ok());
  World w({}, Fake("", options));
  Step(w);
  ASSERT_TRUE(options.services.trace->Stop().ok());
  EXPECT_EQ(DevicesSpans(*options.services.trace->Record()).size(), 1u);
}

TEST(PjrtProfiler, OneThatFailsIsAWarningAndTheTraceGoesOn) {
  for (const char* const fault : {"fail=PLUGIN_Profiler_Create:0:13", "fail=PLUGIN_Profiler_Start:0:13", "fail=PLUGIN_Profiler_Stop:0:13",
                                  "fail=PLUGIN_Profiler_CollectData:0:13", "silent=PLUGIN_Profiler_CollectData"}) {
    Traced traced(fault);
    const TraceRecord record = traced.Run(1);
    EXPECT_TRUE(DevicesSpans(record).empty()) << fault;
    EXPECT_THAT(traced.warnings, ElementsAre(HasSubstr("the trace is without what the plugin's profiler has: "))) << fault;
  }
  Faults("");
}

TEST(PjrtProfiler, DamagedMessagesAreRefused) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
  };
  const std::string event = field(4, std::string("\x08\x05\x10\x90\x4e\x18\xa0\x1f", 8));  // number 5, 10,000 ps later, for 4,000
  const std::string name = field(4, std::string("\x08\x05", 2) + field(2, field(2, "add")));
  const std::string whole = field(1, field(2, "/host") + field(3, field(2, "threads") + "\x18\x64" + event) + name);
  const absl::StatusOr<TraceRecord> record = ReadXSpace(whole, 1000);
  ASSERT_TRUE(record.ok());
  ASSERT_EQ(record->spans.size(), 1u);
  EXPECT_EQ(record->threads[0].name, "/host threads");
  EXPECT_EQ(record->spans[0].name->text, "add");
  EXPECT_EQ(record->spans[0].start, 1110);
  EXPECT_EQ(record->spans[0].end, 1114);
  for (size_t size = 1; size < whole.size(); ++size) EXPECT_FALSE(ReadXSpace(whole.substr(0, size), 0).ok()) << size;
  EXPECT_TRUE(ReadXSpace("", 0).ok());
}

}  // namespace
}  // namespace weft::pjrt
