// A trace as a file for viewers, and what it says as tables. Each is made from a record alone, so that equal records give equal bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/runtime/trace.h"

namespace weft {

// JSON of Chrome's Trace Event Format, which chrome://tracing, Perfetto and Speedscope open. Spans of a thread nest: where one would end
// behind the one around it, it ends with it. Times are microseconds since the trace began.
std::string ChromeOf(const TraceRecord& record);
// An arrow goes from the span that hands a launch over to the launch's own, which has the same argument and the kernels inside.
// Perfetto's TrackEvent messages (https://perfetto.dev/docs/reference/trace-packet-proto).
std::string PerfettoOf(const TraceRecord& record);

// The end of such an arrow, or none.
enum class FlowEnd : uint8_t { kNone, kFrom, kTo };
FlowEnd FlowEndOf(const TraceSpan& span);

// A machine and the most that it can do; 0: not measured.
struct Machine {
  std::string name;                            // as far as that depends on it; empty: not known
  std::string file;                            // where its ceilings are kept, or would be
  int64_t memory = 0;                          // bytes a second, read and written
  int64_t f32 = 0, f64 = 0, bf16 = 0, i8 = 0;  // operations a second of large products

  // By the element type that the implementation's name ends in.
  int64_t PeakOf(std::string_view implementation) const;
};

// The time that each part took.
struct TraceSummary {
  struct Kernel {
    const SpanName* name = nullptr;
    int64_t calls = 0, nanoseconds = 0;
  };
  struct Part {
    std::string_view name;
    int64_t spans = 0, nanoseconds = 0;
  };
  struct Thread {
    std::string name;
    int64_t busy = 0;  // nanoseconds in which it launched, ran, compiled, copied or helped
  };
  int64_t nanoseconds = 0, lost = 0, spans = 0, steps = 0;
  std::vector<Kernel> kernels;  // the most expensive first
  std::vector<Part> parts;      // of callers, the longest first
  std::vector<Part> compiling;  // likewise; spans in others count in both
  std::vector<Thread> threads;
  Machine machine;  // Summarize leaves it empty
};
TraceSummary Summarize(const TraceRecord& record);
// Tables for people, and one JSON object.
std::string TraceTextOf(const TraceSummary& summary);
std::string TraceJsonOf(const TraceSummary& summary);
// A picture of the kernels, 40 at most; no label lies over another.
std::string TraceSvgOf(const TraceSummary& summary);

// Spans of one thread, in their order, which nest: the record's, each cut off where the one around it ends.
std::vector<TraceSpan> Nested(const TraceRecord& record, uint32_t thread);
// A context's value of this name counts its barriers.
inline constexpr SpanName kStepValue{.text = "steps", .kind = SpanKind::kCounter};
// Text as UTF-8: what is none becomes U+FFFD.
std::string Utf8Of(std::string_view text);

}  // namespace weft
