// `weft ceilings`: see ceilings.h.
#include "src/cli/ceilings.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "src/cli/command.h"
#include "src/cli/files.h"
#include "src/cli/json.h"
#include "src/cli/library.h"
#include "src/cli/program.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

using Tensor = std::unique_ptr<weft_tensor, Releases<&weft_tensor_release>>;

constexpr int64_t kElements = int64_t{1} << 25;  // of an array of f32: 128 MiB, more than caches hold
constexpr int64_t kRows = 1536;                  // of a product's factors
constexpr int kRuns = 5;                         // of which the fastest counts

std::string Rate(int64_t per_second) {
  char text[40];
  const double value = static_cast<double>(per_second) / 1e9;
  return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 1).ptr);
}

// Measures in one context; `problem` says what ended it.
struct Meter {
  weft_context* context;
  std::string problem;

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }

  bool Full(const std::vector<int64_t>& dims, weft_dtype dtype, Tensor* out) {
    weft_full_opts options = WEFT_FULL_OPTS_INIT;
    options.present = WEFT_FULL_HAS_DTYPE;
    options.dtype = dtype;
    weft_tensor* made = nullptr;
    if (!Done(weft_full(context, dims.data(), dims.size(), 1, &options, &made))) return false;
    out->reset(made);
    return Done(weft_eval(context, &made, 1, nullptr));
  }

  // Seconds of the fastest run of what `record` records, waited for; less than 0 where it fails.
  double Fastest(const std::function<weft_error*(weft_tensor**)>& record) {
    double fastest = -1;
    for (int i = 0; i <= kRuns; ++i) {  // the first compiles
      weft_tensor* made = nullptr;
      if (!Done(record(&made))) return -1;
      const Tensor owner(made);
      weft_event* event = nullptr;
      const auto begin = std::chrono::steady_clock::now();
      if (!Done(weft_eval(context, &made, 1, &event))) return -1;
      const bool ended = Done(weft_event_wait(event, -1));
      weft_event_release(event);
      if (!ended) return -1;
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (i > 0 && (fastest < 0 || took < fastest)) fastest = took;
    }
    return fastest;
  }

  int64_t Memory() {
    Tensor x;
    if (!Full({kElements}, WEFT_F32, &x)) return 0;
    const double took = Fastest([&](weft_tensor** out) { return weft_neg(context, x.get(), out); });
    return took > 0 ? static_cast<int64_t>(2 * sizeof(float) * kElements / took) : 0;
  }

  // `sums`: the type in which products are added up, where it is another.
  int64_t Products(weft_dtype dtype, weft_dtype sums) {
    Tensor x, y;
    if (!Full({kRows, kRows}, dtype, &x) || !Full({kRows, kRows}, dtype, &y)) return 0;
    const double took = Fastest([&](weft_tensor** out) {
      weft_dot_general_opts options = WEFT_DOT_GENERAL_OPTS_INIT;
      if (sums != dtype) {
        options.present = WEFT_DOT_GENERAL_HAS_DTYPE;
        options.dtype = sums;
      }
      const int64_t left = 1, right = 0;
      return weft_dot_general(context, x.get(), y.get(), nullptr, 0, nullptr, 0, &left, 1, &right, 1, &options, out);
    });
    return took > 0 ? static_cast<int64_t>(2.0 * kRows * kRows * kRows / took) : 0;
  }
};

std::string OpenContext(Context* out) {
  weft_context* made = nullptr;
  // `profile` asks while it has set the variable trace_file for its command.
  const weft_setting settings[] = {{"platform", WEFT_STRLEN, "cpu", WEFT_STRLEN}, {"trace_file", WEFT_STRLEN, "", 0}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = settings;
  options.setting_count = std::size(settings);
  std::string problem = MessageOf(weft_context_create(&options, &made));
  out->reset(made);
  return problem;
}

// The library's own report knows the machine, the file that is its ceilings' (empty without a cache), and what is in it.
Ceilings Known(weft_context* context, std::string* file, std::string* problem) {
  weft_blob* blob = nullptr;
  std::string text;
  Value report("");
  *problem = MessageOf(weft_trace_start(context));
  if (problem->empty()) *problem = MessageOf(weft_trace_stop(context));
  if (problem->empty()) *problem = MessageOf(weft_trace_report(context, WEFT_TRACE_REPORT_JSON, &blob));
  if (!problem->empty() || !TextOf(nullptr, blob, &text, problem) || !FromJson(text, &report)) return {};
  *file = TextIn(FieldsOf(report), "ceilings_file");
  Fields machine;
  for (const auto& [name, value] : FieldsOf(report)) {
    if (name == "machine") machine = FieldsOf(value);
  }
  return {TextIn(machine, "cpu"),    NumberIn(machine, "bytes_per_second"),
          NumberIn(machine, "f32"),  NumberIn(machine, "f64"),
          NumberIn(machine, "bf16"), NumberIn(machine, "i8")};
}

Fields FieldsFor(const Ceilings& c) {
  return {{"cpu", c.cpu}, {"bytes_per_second", c.memory}, {"f32", c.f32}, {"f64", c.f64}, {"bf16", c.bf16},
          {"i8", c.i8}};
}

// The whole file or none.
bool Keep(const std::string& file, const Ceilings& ceilings) {
  const std::string part = file + ".part", text = ToJson(FieldsFor(ceilings)) + "\n";
  std::FILE* const out = std::fopen(part.c_str(), "wx");
  if (out == nullptr) return false;
  const bool wrote = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const bool well = std::fclose(out) == 0 && wrote && std::rename(part.c_str(), file.c_str()) == 0;
  if (!well) std::remove(part.c_str());
  return well;
}

bool MeasureAll(weft_context* context, Ceilings* out, std::string* problem) {
  Meter meter{context, ""};
  const std::pair<int64_t*, std::pair<weft_dtype, weft_dtype>> kinds[] = {{&out->f32, {WEFT_F32, WEFT_F32}},
                                                                          {&out->f64, {WEFT_F64, WEFT_F64}},
                                                                          {&out->bf16, {WEFT_BF16, WEFT_F32}},
                                                                          {&out->i8, {WEFT_I8, WEFT_I32}}};
  out->memory = meter.Memory();
  for (const auto& [rate, types] : kinds) {
    if (meter.problem.empty()) *rate = meter.Products(types.first, types.second);
  }
  *problem = meter.problem;
  return problem->empty();
}

int Fail(const std::string& problem) {
  std::fprintf(stderr, "weft ceilings: %s\n", problem.c_str());
  return kFailed;
}

int Execute(const Arguments& arguments) {
  Context context;
  std::string problem = OpenContext(&context);
  if (!problem.empty()) return Fail(problem);
  std::string file;
  Ceilings ceilings = Known(context.get(), &file, &problem);
  if (!problem.empty()) return Fail(problem);
  if (!ceilings || arguments.has("--measure")) {
    if (!MeasureAll(context.get(), &ceilings, &problem)) return Fail(problem);
    if (!file.empty() && !Keep(file, ceilings)) {
      std::fprintf(stderr, "weft ceilings: %s cannot be written: %s\n", file.c_str(), std::strerror(errno));
    }
  }
  if (arguments.has("--json")) {
    Print(FieldsFor(ceilings), true);
    return kDone;
  }
  std::printf("%s\n%s\n", ceilings.cpu.c_str(), CeilingsText(ceilings).c_str());
  return kDone;
}

const Registration kCeilings(
    {.name = "ceilings",
     .summary = "what this machine can do at most: bytes a second, and operations a second of products by element type",
     .parameter = "",
     .flags = {{"--measure", "anew, where they are kept from before"}, {"--json", "as one JSON object, per second"}},
     .execute = Execute});

}  // namespace

Ceilings KeptCeilings(std::string* file) {
  Context context;
  std::string problem;
  if (!OpenContext(&context).empty()) return {};
  return Known(context.get(), file, &problem);
}

std::string CeilingsText(const Ceilings& c) {
  return "at most " + Rate(c.memory) + " GB/s; GF/s of products: f32 " + Rate(c.f32) + ", f64 " + Rate(c.f64) +
         ", bf16 " + Rate(c.bf16) + ", i8 " + Rate(c.i8);
}

}  // namespace weft::cli
