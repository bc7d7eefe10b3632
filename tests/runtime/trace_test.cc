// Spans: rings of threads, traces that begin and end while others write, and the texts of each format for a fixed record.
#include "src/runtime/trace.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/runtime/metrics.h"
#include "src/runtime/parts.h"
#include "src/runtime/trace_render.h"

namespace weft {
namespace {

constexpr SpanName kEarly{.text = "early"}, kWithin{.text = "within"}, kLate{.text = "late"};
constexpr int64_t kPlenty = 1 << 20;

// No other trace of this process has that number.
uint64_t NewId() { return Metrics().id(); }

TEST(Trace, KeepsNothingUntilItIsStartedAndNothingAfterItIsStopped) {
  Trace trace(NewId());
  EXPECT_FALSE(trace.on());
  EXPECT_EQ(trace.Stop().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(trace.Record().status().code(), absl::StatusCode::kFailedPrecondition);
  { const SpanScope span(trace, kEarly); }
  const int64_t before = MonotonicNow();
  ASSERT_TRUE(trace.Start(kPlenty).ok());
  EXPECT_TRUE(trace.on());
  EXPECT_EQ(trace.Start(kPlenty).code(), absl::StatusCode::kFailedPrecondition);
  { const SpanScope span(trace, kWithin, 7); }
  EXPECT_EQ(trace.Record()->spans.size(), 1u);  // of a trace that goes on
  ASSERT_TRUE(trace.Stop().ok());
  const int64_t after = MonotonicNow();
  { const SpanScope span(trace, kLate); }
  EXPECT_FALSE(trace.on());
  const TraceRecord record = *trace.Record();
  ASSERT_EQ(record.spans.size(), 1u);
  EXPECT_EQ(record.spans[0].name, &kWithin);
  EXPECT_EQ(record.spans[0].argument, 7);
  EXPECT_LE(record.spans[0].start, record.spans[0].end);
  // The counter is tied to the clock: half a microsecond for its readings.
  EXPECT_GE(record.spans[0].start, before - 500);
  EXPECT_LE(record.spans[0].end, after + 500);
  EXPECT_EQ(record.lost, 0);
  ASSERT_TRUE(trace.Start(kPlenty).ok());
  EXPECT_TRUE(trace.Record()->spans.empty());
}

TEST(Trace, AFullRingLosesTheOldestAndSaysHowMany) {
  Trace trace(NewId());
  ASSERT_TRUE(trace.Start(3 * Trace::kEventBytes).ok());
  for (int64_t i = 0; i < 5; ++i) const SpanScope span(trace, kWithin, i);
  std::thread([&] {
    for (int64_t i = 0; i < 4; ++i) const SpanScope span(trace, kLate, i);
  }).join();  // a thread that ends with its ring full
  ASSERT_TRUE(trace.Stop().ok());
  const TraceRecord record = *trace.Record();
  EXPECT_EQ(record.lost, 2 + 1);
  ASSERT_EQ(record.threads.size(), 2u);
  ASSERT_EQ(record.spans.size(), 6u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(record.spans[i].argument, 2 + i);
    EXPECT_EQ(record.spans[i].thread, 0u);
    EXPECT_EQ(record.spans[3 + i].argument, 1 + i);
    EXPECT_EQ(record.spans[3 + i].thread, 1u);
  }
}

TEST(Trace, TwoTracesOfOneThreadKeepApart) {
  Trace a(NewId()), b(NewId());
  ASSERT_TRUE(a.Start(kPlenty).ok());
  { const SpanScope span(b, kEarly); }
  ASSERT_TRUE(b.Start(kPlenty).ok());
  for (int i = 0; i < 3; ++i) {
    const SpanScope one(a, kWithin), other(b, kLate);
  }
  ASSERT_TRUE(a.Stop().ok());
  { const SpanScope one(a, kWithin), other(b, kLate); }
  const auto count = [](const Trace& trace, const SpanName& name) {
    const TraceRecord record = *trace.Record();
    EXPECT_EQ(record.threads.size(), 1u);
    EXPECT_EQ(record.lost, 0);
    return std::ranges::count(record.spans, &name, &TraceSpan::name) * 100 + static_cast<int64_t>(record.spans.size());
  };
  EXPECT_EQ(count(a, kWithin), 303);
  EXPECT_EQ(count(b, kLate), 404);
}

TEST(Trace, MayEndAndGoWhileOthersWrite) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> id{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const SpanScope outer(id.load(std::memory_order_relaxed), kWithin);
        const SpanScope inner(id.load(std::memory_order_relaxed), kLate);
      }
    });
  }
  int64_t seen = 0;
  for (int round = 0; round < 200; ++round) {
    Trace trace(NewId());
    ASSERT_TRUE(trace.Start(64 * Trace::kEventBytes).ok());
    id.store(trace.id(), std::memory_order_relaxed);
    if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const TraceRecord record = *trace.Record();
    for (const TraceSpan& span : record.spans) {
      ASSERT_TRUE(span.name == &kWithin || span.name == &kLate);
      ASSERT_LE(span.start, span.end);
    }
    seen += static_cast<int64_t>(record.spans.size());
    if (round % 2 == 0) ASSERT_TRUE(trace.Stop().ok());  // else it goes as it is
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(seen, 0);
  EXPECT_FALSE(Tracing());
}

TEST(Trace, ThreadsThatEndMakeRoomForOthers) {
  Trace trace(NewId());
  ASSERT_TRUE(trace.Start(4 * Trace::kEventBytes).ok());
  const auto most = static_cast<int64_t>(Trace::kMostLanes);
  for (int64_t i = 0; i < most + 10; ++i) {
    std::thread([&] { const SpanScope span(trace, kWithin, i); }).join();
  }
  const TraceRecord record = *trace.Record();
  EXPECT_EQ(static_cast<int64_t>(record.threads.size()), most);
  EXPECT_EQ(record.lost, 10);
  EXPECT_EQ(record.spans.front().argument, 10);
}

TEST(Trace, PartsOfACallersThreadAreSpansThatDoNotOverlap) {
  Metrics metrics;
  Trace trace(metrics.id());
  ASSERT_TRUE(trace.Start(kPlenty).ok());
  PartScope::Begin(metrics);
  {
    const PartScope look_up(metrics, Part::kLookingUp);
    { const PartScope launch(metrics, Part::kLaunching); }
  }
  PartScope::SplitSpan(metrics.id());
  const TraceRecord record = *trace.Record();
  std::vector<std::string> names;
  int64_t until = 0;
  for (const TraceSpan& span : record.spans) {
    names.emplace_back(span.name->text);
    EXPECT_GE(span.start, until);
    until = span.end;
  }
  EXPECT_THAT(names, testing::ElementsAre("record", "look up", "launch", "look up", "record"));
}

TEST(SpanNames, AreOneIfTheyAreEqual) {
  const std::string text = absl::StrCat("a", "b");
  const SpanName* const one = InternSpanName({.text = text, .kind = SpanKind::kKernel, .flops = 3});
  EXPECT_EQ(one, InternSpanName({.text = "ab", .kind = SpanKind::kKernel, .flops = 3}));
  EXPECT_NE(one, InternSpanName({.text = "ab", .kind = SpanKind::kKernel, .flops = 4}));
  EXPECT_NE(one->text.data(), text.data());
}

// --- Texts of a record that is always the same --------------------------------------------------------------------------

constexpr SpanName kGemm{.text = "gemm",
                         .kind = SpanKind::kKernel,
                         .implementation = "gemm few rows avx2 f32",
                         .where = "a\"b\\c.py:7",
                         .flops = 4000,
                         .bytes_read = 300,
                         .bytes_written = 100};
constexpr SpanName kOdd{.text = "100 %\n\xff\xc3\xa9", .kind = SpanKind::kUser};
constexpr SpanName kMemory{.text = "bytes in use", .kind = SpanKind::kCounter};
constexpr SpanName kRecord{.text = "record"};
constexpr SpanName kHandOver{.text = "hand over", .kind = SpanKind::kLaunch};

TraceRecord Fixed() {
  TraceRecord record;
  record.start = 1'000'000;
  record.end = 1'010'000;
  record.lost = 2;
  record.threads = {{"ma\"in", 41}, {"weft-pool-1", 42}};
  record.spans = {{&kRecord, 1'000'000, 1'001'000, 0, 0},
                  {&kOdd, 1'001'000, 1'006'500, 0, 0},
                  {&kRunSpan, 1'001'500, 1'006'000, 0, 0},
                  {&kGemm, 1'002'000, 1'004'000, 0, 0},
                  {&kGemm, 1'004'000, 1'006'001, 0, 0},  // ends behind the one around it
                  {&kMemory, 1'006'100, 1'006'100, 4096, 0},
                  {&kStepValue, 1'007'000, 1'007'000, 1, 0},
                  {&kGemm, 1'002'500, 1'003'500, 0, 1}};
  return record;
}

TEST(TraceTexts, ChromeIsValidAndNests) {
  EXPECT_EQ(ChromeOf(Fixed()),
            R"({"displayTimeUnit":"ns","otherData":{"producer":"weft","lost":2,"start_ns":1000000,"duration_ns":10000},"traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"weft"}},
{"ph":"M","pid":1,"tid":41,"name":"thread_name","args":{"name":"ma\"in"}},
{"ph":"M","pid":1,"tid":41,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"X","pid":1,"tid":41,"ts":0,"dur":1,"cat":"caller","name":"record"},
{"ph":"X","pid":1,"tid":41,"ts":1,"dur":5.500,"cat":"user","name":"100 %\u000a)" "\xef\xbf\xbd\xc3\xa9" R"("},
{"ph":"X","pid":1,"tid":41,"ts":1.500,"dur":4.500,"cat":"launch","name":"run"},
{"ph":"X","pid":1,"tid":41,"ts":2,"dur":2,"cat":"kernel","name":"gemm","args":{"implementation":"gemm few rows avx2 f32","where":"a\"b\\c.py:7","flops":4000,"bytes_read":300,"bytes_written":100}},
{"ph":"X","pid":1,"tid":41,"ts":4,"dur":2,"cat":"kernel","name":"gemm","args":{"implementation":"gemm few rows avx2 f32","where":"a\"b\\c.py:7","flops":4000,"bytes_read":300,"bytes_written":100}},
{"ph":"C","pid":1,"tid":41,"ts":6.100,"name":"bytes in use","args":{"value":4096}},
{"ph":"C","pid":1,"tid":41,"ts":7,"name":"steps","args":{"value":1}},
{"ph":"M","pid":1,"tid":42,"name":"thread_name","args":{"name":"weft-pool-1"}},
{"ph":"M","pid":1,"tid":42,"name":"thread_sort_index","args":{"sort_index":1}},
{"ph":"X","pid":1,"tid":42,"ts":2.500,"dur":1,"cat":"kernel","name":"gemm","args":{"implementation":"gemm few rows avx2 f32","where":"a\"b\\c.py:7","flops":4000,"bytes_read":300,"bytes_written":100}}
]}
)");
}

// Launch 7 is handed over on one thread and runs on the other.
TEST(TraceTexts, ArrowsGoFromTheCallToItsLaunch) {
  TraceRecord record = Fixed();
  record.spans = {{&kHandOver, 1'001'000, 1'002'000, 7, 0}, {&kRunSpan, 1'003'000, 1'006'000, 7, 1}};
  EXPECT_THAT(ChromeOf(record), testing::HasSubstr(R"("cat":"launch","name":"hand over"},
{"ph":"s","pid":1,"tid":41,"ts":1,"cat":"launch","name":"launch","id":7})"));
  EXPECT_THAT(ChromeOf(record), testing::HasSubstr(R"("cat":"launch","name":"run"},
{"ph":"f","bp":"e","pid":1,"tid":42,"ts":3,"cat":"launch","name":"launch","id":7})"));
  // Fields 47 and 48, eight bytes each.
  const std::string seven("\x07\0\0\0\0\0\0\0", 8);
  EXPECT_THAT(PerfettoOf(record), testing::HasSubstr("\xf9\x02" + seven));
  EXPECT_THAT(PerfettoOf(record), testing::HasSubstr("\x81\x03" + seven));
}

TEST(TraceTexts, ReportHasKernelsPartsAndThreads) {
  EXPECT_EQ(TraceTextOf(Summarize(Fixed())), R"(trace of 0.010 ms: 2 threads, 8 spans, 2 lost, 1 steps

kernels, 0.005 ms:
   share       calls     mean us      GF/s  of most      GB/s  of most  name, implementation (position)
  100.00 %         3 x         1.7      2.40        -      0.24        -  gemm, gemm few rows avx2 f32 (a"b\c.py:7)

callers' threads:
   55.00 %         0.005 ms       0.005 ms a step         1 x  100 % )" "\xef\xbf\xbd\xc3\xa9" R"(
   10.00 %         0.001 ms       0.001 ms a step         1 x  record

threads, busy:
   45.00 %  ma"in
   10.00 %  weft-pool-1
)");
}

TEST(TraceTexts, ReportHasKernelsBesideTheMostThatTheMachineCanDo) {
  TraceSummary summary = Summarize(Fixed());
  summary.machine = {.name = "A CPU, 2 threads", .file = "/c\"f", .memory = 960'000'000, .f32 = 4'800'000'000, .f64 = 1, .bf16 = 7'000'000'000, .i8 = 3};
  std::string text = TraceTextOf(summary);
  EXPECT_THAT(text, testing::HasSubstr("      2.40     50 %      0.24     25 %  gemm, gemm few rows"));
  EXPECT_THAT(text, testing::HasSubstr("  (most: 1.0 GB/s; GF/s of products: f32 4.8, f64 0.0, bf16 7.0, i8 0.0; A CPU, 2 threads)\n\ncallers' threads:"));
  EXPECT_THAT(TraceJsonOf(summary), testing::EndsWith("], \"machine\": {\"cpu\": \"A CPU, 2 threads\", \"bytes_per_second\": 960000000, "
                                                      "\"f32\": 4800000000, \"f64\": 1, \"bf16\": 7000000000, \"i8\": 3}, "
                                                      "\"ceilings_file\": \"/c\\\"f\"}\n"));
  EXPECT_EQ(summary.machine.PeakOf("gemm tiles vnni avx512 i8"), 3);
  EXPECT_EQ(summary.machine.PeakOf("gemm amx bf16"), 7'000'000'000);
  summary.machine.memory = 0;
  text = TraceTextOf(summary);
  EXPECT_THAT(text, testing::HasSubstr("  (most: not measured on this machine, which `weft ceilings` does)\n"));
}

TEST(TraceTexts, ReportsJsonHasTheSame) {
  const std::string json = TraceJsonOf(Summarize(Fixed()));
  EXPECT_THAT(json, testing::HasSubstr("\"kernels\": [{\"name\": \"gemm\", \"implementation\": \"gemm few rows avx2 f32\", \"where\": "
                                       "\"a\\\"b\\\\c.py:7\", \"calls\": 3, \"nanoseconds\": 5000, \"flops\": 4000, "
                                       "\"bytes_read\": 300, \"bytes_written\": 100}]"));
  EXPECT_THAT(json, testing::HasSubstr("\"threads\": [{\"name\": \"ma\\\"in\", \"busy_nanoseconds\": 4500}"));
}

TEST(TraceTexts, PicturesLabelsHaveRowsOfTheirOwnAndFitIn) {
  TraceSummary summary = Summarize(Fixed());
  const std::string name(300, '<');
  const SpanName long_name{.text = name, .kind = SpanKind::kKernel, .implementation = "a & b"};
  for (int i = 0; i < 60; ++i) summary.kernels.push_back({&long_name, 1, 1});
  const std::string svg = TraceSvgOf(summary);
  EXPECT_THAT(svg, testing::HasSubstr("<text x=\"12\" y=\"60\"> 98.8 %  3 x  2.4 GF/s  gemm, gemm few rows avx2 f32 (a\"b\\c.py:7)</text>"));
  std::vector<int> rows;
  for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1)) {
    const size_t y = svg.find("y=\"", at) + 3, text = svg.find('>', at) + 1;
    rows.push_back(std::stoi(svg.substr(y)));
    std::string label = svg.substr(text, svg.find("</text>", at) - text);
    EXPECT_EQ(label.find('<'), std::string::npos);
    for (size_t i = label.find("&lt;"); i != std::string::npos; i = label.find("&lt;")) label.replace(i, 4, "x");
    EXPECT_LE(label.size() * 7.3 + 12, 960);
  }
  ASSERT_EQ(rows.size(), 41u);
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_GE(rows[i] - rows[i - 1], 12);
}

// A message's fields, by number: numbers as they are, the others as bytes.
struct Field {
  int number;
  uint64_t value;
  std::string bytes;
};
std::vector<Field> Fields(std::string_view bytes) {
  std::vector<Field> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < bytes.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a number without an end";
    return value;
  };
  while (at < bytes.size()) {
    const uint64_t key = varint();
    Field field{static_cast<int>(key >> 3), 0, ""};
    field.value = varint();
    if ((key & 7) == 2) {
      field.bytes = bytes.substr(at, field.value);
      EXPECT_LE(field.value, bytes.size() - at);
      at += field.value;
    } else {
      EXPECT_EQ(key & 7, 0u);
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

TEST(TraceTexts, PerfettosPacketsBeginAndEndSpans) {
  std::vector<std::string> events;
  std::vector<std::string> names;
  for (const Field& packet : Fields(PerfettoOf(Fixed()))) {
    ASSERT_EQ(packet.number, 1);
    uint64_t time = 0;
    for (const Field& field : Fields(packet.bytes)) {
      if (field.number == 8) time = field.value;
      if (field.number == 12) {
        for (const Field& entry : Fields(field.bytes)) {
          if (entry.number == 2) names.push_back(Fields(entry.bytes)[1].bytes);
        }
      }
      if (field.number != 11) continue;
      std::string event = absl::StrCat(time - 1'000'000);
      for (const Field& part : Fields(field.bytes)) {
        if (part.number == 9) event += part.value == 1 ? " begin" : part.value == 2 ? " end" : " value";
        if (part.number == 10) absl::StrAppend(&event, " name ", part.value);
        if (part.number == 11) absl::StrAppend(&event, " track ", part.value);
        if (part.number == 30) absl::StrAppend(&event, " = ", part.value);
      }
      events.push_back(event);
    }
  }
  EXPECT_THAT(names, testing::ElementsAre("record", "100 %\n\xef\xbf\xbd\xc3\xa9", "run", "gemm"));
  EXPECT_THAT(events, testing::ElementsAre("0 begin track 2 name 1", "1000 end track 2", "1000 begin track 2 name 2",
                                           "1500 begin track 2 name 3", "2000 begin track 2 name 4", "4000 end track 2",
                                           "4000 begin track 2 name 4", "6100 value track 1000000 = 4096",
                                           "7000 value track 1000001 = 1", "6000 end track 2", "6000 end track 2",
                                           "6500 end track 2", "2500 begin track 3 name 4", "3500 end track 3"));
}

}  // namespace
}  // namespace weft
