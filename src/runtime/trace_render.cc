// See trace_render.h.
#include "src/runtime/trace_render.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "src/runtime/json_text.h"
#include "src/runtime/number_text.h"

namespace weft {
namespace {

// Bytes of the UTF-8 character that begins there; 0: none does.
size_t CharacterAt(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  // Spelled longer than need be, halves of UTF-16's pairs, and what lies behind the last character.
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) || (lead == 0xf0 && second < 0x90) ||
      (lead == 0xf4 && second >= 0x90)) {
    return 0;
  }
  return size;
}

std::string Text(std::string_view text) { return JsonText(Utf8Of(text)); }

// Nanoseconds as microseconds, exactly.
std::string Micros(int64_t nanoseconds) {
  const int64_t whole = nanoseconds / 1000, rest = nanoseconds % 1000;
  return rest == 0 ? absl::StrCat(whole) : absl::StrCat(whole, ".", absl::Dec(rest, absl::kZeroPad3));
}

std::string ArgumentsOf(const TraceSpan& span) {
  const SpanName& name = *span.name;
  if (name.kind == SpanKind::kCounter) return absl::StrCat(",\"args\":{\"value\":", span.argument, "}");
  std::string args;
  const auto add = [&](std::string_view key, const std::string& value) {
    absl::StrAppend(&args, args.empty() ? "" : ",", "\"", key, "\":", value);
  };
  if (!name.implementation.empty()) add("implementation", Text(name.implementation));
  if (!name.where.empty()) add("where", Text(name.where));
  if (name.flops >= 0) add("flops", absl::StrCat(name.flops));
  if (name.bytes_read >= 0) add("bytes_read", absl::StrCat(name.bytes_read));
  if (name.bytes_written >= 0) add("bytes_written", absl::StrCat(name.bytes_written));
  return args.empty() ? "" : absl::StrCat(",\"args\":{", args, "}");
}

// A thread that waits, or whose caller does something else, does no work of its own.
bool IsWork(const SpanName& name) {
  if (name.kind == SpanKind::kCounter || name.kind == SpanKind::kUser) return false;
  return name.kind != SpanKind::kCaller || !(name.text == "record" || name.text.starts_with("wait"));
}

template <typename Row>
std::vector<Row> Sorted(const std::map<std::string_view, Row>& rows) {
  std::vector<Row> sorted;
  for (const auto& [name, row] : rows) sorted.push_back(row);
  std::ranges::stable_sort(sorted, [](const Row& a, const Row& b) { return a.nanoseconds > b.nanoseconds; });
  return sorted;
}

double Rate(int64_t amount, int64_t calls, int64_t nanoseconds) {
  return static_cast<double>(amount) * static_cast<double>(calls) /
         static_cast<double>(std::max<int64_t>(nanoseconds, 1));
}

// A rate in billions a second; nothing where nobody knows.
std::string RateText(int64_t amount, const TraceSummary::Kernel& kernel) {
  return amount < 0 ? "-" : FixedText(Rate(amount, kernel.calls, kernel.nanoseconds), 2);
}
// A rate's share of the most that the machine can do; nothing where either is not known.
std::string ShareText(int64_t amount, const TraceSummary::Kernel& kernel, int64_t most) {
  if (amount < 0 || most <= 0) return "-";
  return FixedText(1e11 * Rate(amount, kernel.calls, kernel.nanoseconds) / static_cast<double>(most), 0) + " %";
}
int64_t BytesOf(const SpanName& name) {
  return name.bytes_read < 0 || name.bytes_written < 0 ? -1 : name.bytes_read + name.bytes_written;
}

double Percent(int64_t part, int64_t of) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(of, 1));
}

// One line, whatever is in it.
std::string Line(std::string_view text) {
  std::string line = Utf8Of(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return line;
}

void AddParts(const std::vector<TraceSummary::Part>& parts, const TraceSummary& summary, std::string* text) {
  for (const TraceSummary::Part& part : parts) {
    const double milliseconds = static_cast<double>(part.nanoseconds) / 1e6;
    absl::StrAppend(text, "  ", Right(FixedText(Percent(part.nanoseconds, summary.nanoseconds), 2), 6), " %  ",
                    Right(FixedText(milliseconds, 3), 12), " ms  ");
    if (summary.steps > 0) {
      absl::StrAppend(text, Right(FixedText(milliseconds / static_cast<double>(summary.steps), 3), 10), " ms a step  ");
    }
    absl::StrAppend(text, Right(absl::StrCat(part.spans), 8), " x  ", Line(part.name), "\n");
  }
}

std::string MachineText(const Machine& machine) {
  if (machine.name.empty()) return "";
  if (machine.memory <= 0) return absl::StrCat("  (most: not measured on this machine, which `weft ceilings` does)\n");
  const auto rate = [](int64_t value) { return FixedText(static_cast<double>(value) / 1e9, 1); };
  return absl::StrCat("  (most: ", rate(machine.memory), " GB/s; GF/s of products: f32 ", rate(machine.f32), ", f64 ",
                      rate(machine.f64), ", bf16 ", rate(machine.bf16), ", i8 ", rate(machine.i8), "; ",
                      Line(machine.name), ")\n");
}

std::string PartsJson(const std::vector<TraceSummary::Part>& parts) {
  std::string json;
  for (const TraceSummary::Part& part : parts) {
    absl::StrAppend(&json, json.empty() ? "" : ", ", "{\"name\": ", Text(part.name), ", \"spans\": ", part.spans,
                    ", \"nanoseconds\": ", part.nanoseconds, "}");
  }
  return json;
}

}  // namespace

std::string Utf8Of(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t size = CharacterAt(text);
    out.append(size == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, size));
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

std::vector<TraceSpan> Nested(const TraceRecord& record, uint32_t thread) {
  const auto [first, last] =
      std::equal_range(record.spans.begin(), record.spans.end(), TraceSpan{.thread = thread},
                       [](const TraceSpan& a, const TraceSpan& b) { return a.thread < b.thread; });
  std::vector<TraceSpan> spans(first, last);
  std::vector<int64_t> ends;
  for (TraceSpan& span : spans) {
    if (span.name->kind == SpanKind::kCounter) continue;
    while (!ends.empty() && ends.back() <= span.start) ends.pop_back();
    if (!ends.empty()) span.end = std::min(span.end, ends.back());
    ends.push_back(span.end);
  }
  return spans;
}

std::string ChromeOf(const TraceRecord& record) {
  std::string json =
      absl::StrCat("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"weft\",\"lost\":", record.lost,
                   ",\"start_ns\":", record.start, ",\"duration_ns\":", record.end - record.start,
                   "},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":"
                   "{\"name\":\"weft\"}}");
  for (uint32_t t = 0; t < record.threads.size(); ++t) {
    const TraceThread& thread = record.threads[t];
    const std::string about = absl::StrCat(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":", thread.number, ",\"name\":");
    absl::StrAppend(&json, about, "\"thread_name\",\"args\":{\"name\":", Text(thread.name), "}}", about,
                    "\"thread_sort_index\",\"args\":{\"sort_index\":", t, "}}");
    for (const TraceSpan& span : Nested(record, t)) {
      const bool value = span.name->kind == SpanKind::kCounter;
      absl::StrAppend(&json, ",\n{\"ph\":\"", value ? "C" : "X", "\",\"pid\":1,\"tid\":", thread.number,
                      ",\"ts\":", Micros(span.start - record.start));
      if (!value) {
        absl::StrAppend(&json, ",\"dur\":", Micros(span.end - span.start), ",\"cat\":\"", NameOf(span.name->kind),
                        "\"");
      }
      absl::StrAppend(&json, ",\"name\":", Text(span.name->text), ArgumentsOf(span), "}");
      if (const FlowEnd flow = FlowEndOf(span); flow != FlowEnd::kNone) {
        absl::StrAppend(&json, ",\n{\"ph\":\"", flow == FlowEnd::kFrom ? "s" : "f\",\"bp\":\"e",
                        "\",\"pid\":1,\"tid\":", thread.number, ",\"ts\":", Micros(span.start - record.start),
                        ",\"cat\":\"launch\",\"name\":\"launch\",\"id\":", span.argument, "}");
      }
    }
  }
  return json + "\n]}\n";
}

FlowEnd FlowEndOf(const TraceSpan& span) {
  if (span.name->kind != SpanKind::kLaunch || span.argument == 0) return FlowEnd::kNone;
  return span.name->text == kRunSpan.text ? FlowEnd::kTo : FlowEnd::kFrom;
}

int64_t Machine::PeakOf(std::string_view implementation) const {
  const auto has = [&](std::string_view type) { return implementation.find(type) != std::string_view::npos; };
  return has("bf16") ? bf16 : has("f64") ? f64 : has("i8") ? i8 : f32;
}

TraceSummary Summarize(const TraceRecord& record) {
  TraceSummary summary;
  summary.nanoseconds = record.end - record.start;
  summary.lost = record.lost;
  std::map<const SpanName*, TraceSummary::Kernel> kernels;
  std::map<std::string_view, TraceSummary::Part> parts, compiling;
  for (uint32_t t = 0; t < record.threads.size(); ++t) {
    TraceSummary::Thread thread{record.threads[t].name};
    int64_t until = record.start;
    for (const TraceSpan& span : Nested(record, t)) {
      const SpanName& name = *span.name;
      const int64_t took = span.end - span.start;
      ++summary.spans;
      if (&name == &kStepValue) ++summary.steps;
      if (name.kind == SpanKind::kKernel) {
        TraceSummary::Kernel& kernel = kernels.try_emplace(&name, TraceSummary::Kernel{&name}).first->second;
        ++kernel.calls;
        kernel.nanoseconds += took;
      }
      const bool compiles = name.kind == SpanKind::kCompile || name.kind == SpanKind::kFile;
      if (compiles || name.kind == SpanKind::kCaller || name.kind == SpanKind::kUser) {
        auto& of = compiles ? compiling : parts;
        TraceSummary::Part& part = of.try_emplace(name.text, TraceSummary::Part{name.text}).first->second;
        ++part.spans;
        part.nanoseconds += took;
      }
      if (IsWork(name) && span.end > until) {
        thread.busy += span.end - std::max(span.start, until);
        until = span.end;
      }
    }
    summary.threads.push_back(std::move(thread));
  }
  for (const auto& [name, kernel] : kernels) summary.kernels.push_back(kernel);
  std::ranges::sort(summary.kernels, [](const TraceSummary::Kernel& a, const TraceSummary::Kernel& b) {
    if (a.nanoseconds != b.nanoseconds) return a.nanoseconds > b.nanoseconds;
    return std::tie(a.name->text, a.name->implementation, a.name->where, a.name->flops) <
           std::tie(b.name->text, b.name->implementation, b.name->where, b.name->flops);
  });
  summary.parts = Sorted(parts);
  summary.compiling = Sorted(compiling);
  return summary;
}

std::string TraceTextOf(const TraceSummary& summary) {
  std::string text = absl::StrCat("trace of ", FixedText(static_cast<double>(summary.nanoseconds) / 1e6, 3),
                                  " ms: ", summary.threads.size(), " threads, ", summary.spans, " spans, ",
                                  summary.lost, " lost, ", summary.steps, " steps\n");
  int64_t all = 0;
  for (const TraceSummary::Kernel& kernel : summary.kernels) all += kernel.nanoseconds;
  absl::StrAppend(&text, "\nkernels, ", FixedText(static_cast<double>(all) / 1e6, 3),
                  " ms:\n   share       calls     mean us      GF/s  of most      GB/s  of most  "
                  "name, implementation (position)\n");
  for (const TraceSummary::Kernel& kernel : summary.kernels) {
    const SpanName& name = *kernel.name;
    const double mean = static_cast<double>(kernel.nanoseconds) / 1e3 / static_cast<double>(kernel.calls);
    absl::StrAppend(&text, "  ", Right(FixedText(Percent(kernel.nanoseconds, all), 2), 6), " %  ",
                    Right(absl::StrCat(kernel.calls), 8), " x  ", Right(FixedText(mean, 1), 10), "  ",
                    Right(RateText(name.flops, kernel), 8), "  ",
                    Right(ShareText(name.flops, kernel, summary.machine.PeakOf(name.implementation)), 7), "  ",
                    Right(RateText(BytesOf(name), kernel), 8), "  ",
                    Right(ShareText(BytesOf(name), kernel, summary.machine.memory), 7), "  ");
    absl::StrAppend(&text, Line(name.text), ", ", Line(name.implementation));
    absl::StrAppend(&text, name.where.empty() ? "" : absl::StrCat(" (", Line(name.where), ")"), "\n");
  }
  if (!summary.kernels.empty()) text += MachineText(summary.machine);
  absl::StrAppend(&text, "\ncallers' threads:\n");
  AddParts(summary.parts, summary, &text);
  if (!summary.compiling.empty()) absl::StrAppend(&text, "\ncompiling and files (a span in another counts in both):\n");
  AddParts(summary.compiling, summary, &text);
  absl::StrAppend(&text, "\nthreads, busy:\n");
  for (const TraceSummary::Thread& thread : summary.threads) {
    absl::StrAppend(&text, "  ", Right(FixedText(Percent(thread.busy, summary.nanoseconds), 2), 6), " %  ",
                    Line(thread.name), "\n");
  }
  return text;
}

std::string TraceJsonOf(const TraceSummary& summary) {
  std::string kernels, threads;
  for (const TraceSummary::Kernel& kernel : summary.kernels) {
    const SpanName& name = *kernel.name;
    absl::StrAppend(&kernels, kernels.empty() ? "" : ", ", "{\"name\": ", Text(name.text),
                    ", \"implementation\": ", Text(name.implementation), ", \"where\": ", Text(name.where),
                    ", \"calls\": ", kernel.calls, ", \"nanoseconds\": ", kernel.nanoseconds,
                    ", \"flops\": ", name.flops, ", \"bytes_read\": ", name.bytes_read,
                    ", \"bytes_written\": ", name.bytes_written, "}");
  }
  for (const TraceSummary::Thread& thread : summary.threads) {
    absl::StrAppend(&threads, threads.empty() ? "" : ", ", "{\"name\": ", Text(thread.name),
                    ", \"busy_nanoseconds\": ", thread.busy, "}");
  }
  const Machine& machine = summary.machine;
  const std::string most = absl::StrCat("{\"cpu\": ", Text(machine.name), ", \"bytes_per_second\": ", machine.memory,
                                        ", \"f32\": ", machine.f32, ", \"f64\": ", machine.f64,
                                        ", \"bf16\": ", machine.bf16, ", \"i8\": ", machine.i8, "}");
  return absl::StrCat("{\"nanoseconds\": ", summary.nanoseconds, ", \"spans\": ", summary.spans,
                      ", \"lost\": ", summary.lost, ", \"steps\": ", summary.steps, ", \"kernels\": [", kernels,
                      "], \"parts\": [", PartsJson(summary.parts), "], \"compiling\": [", PartsJson(summary.compiling),
                      "], \"threads\": [", threads, "], \"machine\": ", most,
                      ", \"ceilings_file\": ", Text(machine.file), "}\n");
}

}  // namespace weft
