// See measured.h. Each operation's position is its number, and the trace's report names the positions of a kernel's operations.
#include "src/cli/measured.h"

#include <algorithm>
#include <charconv>

#include "src/cli/json.h"
#include "src/cli/program.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

using Tensor = std::unique_ptr<weft_tensor, Releases<&weft_tensor_release>>;

// So often, behind a first run that compiles.
constexpr int kRuns = 5;

struct Runner {
  std::string problem;
  Context context;
  Function function;
  std::vector<Tensor> inputs;
  size_t results = 0;

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }

  bool Open(const std::string& text) {
    if (!Done(CreateWithoutCache(&context))) return false;
    weft_function* read = nullptr;
    if (!Done(weft_function_from_text(context.get(), text.data(), text.size(), &read))) return false;
    function.reset(read);
    size_t count = 0;
    if (!Done(weft_function_inputs(read, nullptr, 0, &count))) return false;
    std::vector<weft_tensor_info> types(count);
    if (!Done(weft_function_inputs(read, types.data(), count, &count)) ||
        !Done(weft_function_results(read, nullptr, 0, &results))) {
      return false;
    }
    problem = MakeZeros(context.get(), types, &inputs);
    return problem.empty();
  }

  bool Once() {
    std::vector<weft_tensor*> in, out(results);
    for (const Tensor& input : inputs) in.push_back(input.get());
    size_t count = 0;
    if (!Done(
            weft_function_call(context.get(), function.get(), in.data(), in.size(), out.data(), out.size(), &count))) {
      return false;
    }
    std::vector<Tensor> owners;
    for (weft_tensor* tensor : out) owners.emplace_back(tensor);
    weft_event* event = nullptr;
    if (!Done(weft_eval(context.get(), out.data(), out.size(), &event))) return false;
    const bool ended = Done(weft_event_wait(event, -1));
    weft_event_release(event);
    return ended;
  }
};

// "node:4, node:12"
std::vector<size_t> NumbersIn(std::string_view where) {
  constexpr std::string_view kMark = "node:";
  std::vector<size_t> numbers;
  for (size_t at = where.find(kMark); at != where.npos; at = where.find(kMark, at)) {
    at += kMark.size();
    size_t number = 0;
    std::from_chars(where.data() + at, where.data() + where.size(), number);
    numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

std::string MakeZeros(weft_context* context, const std::vector<weft_tensor_info>& types, std::vector<Tensor>* out) {
  for (const weft_tensor_info& type : types) {
    weft_full_opts options = WEFT_FULL_OPTS_INIT;
    options.present = WEFT_FULL_HAS_DTYPE;
    options.dtype = type.dtype;
    weft_tensor* tensor = nullptr;
    std::string problem = MessageOf(weft_full(context, type.dims, type.rank, 0, &options, &tensor));
    if (!problem.empty()) return problem;
    out->emplace_back(tensor);
    problem = MessageOf(weft_eval(context, &tensor, 1, nullptr));
    if (!problem.empty()) return problem;
  }
  return "";
}

bool Measure(const FlatProgram& program, std::string* problem, std::vector<MeasuredKernel>* out) {
  Runner runner;
  bool well = runner.Open(program.Text()) && runner.Once() && runner.Done(weft_trace_start(runner.context.get()));
  for (int i = 0; well && i < kRuns; ++i) well = runner.Once();
  weft_blob* blob = nullptr;
  well = well && runner.Done(weft_trace_stop(runner.context.get()));
  well = well && runner.Done(weft_trace_report(runner.context.get(), WEFT_TRACE_REPORT_JSON, &blob));
  std::string text;
  well = well && TextOf(nullptr, blob, &text, &runner.problem);
  *problem = runner.problem;
  Value report("");
  if (!well || !FromJson(text, &report)) return false;
  for (const Value& row : ListIn(FieldsOf(report), "kernels")) {
    const Fields& fields = FieldsOf(row);
    const int64_t read = NumberIn(fields, "bytes_read"), written = NumberIn(fields, "bytes_written");
    out->push_back({.name = TextIn(fields, "name"),
                    .implementation = TextIn(fields, "implementation"),
                    .nanoseconds = NumberIn(fields, "nanoseconds") / kRuns,
                    .flops = NumberIn(fields, "flops"),
                    .bytes = read < 0 || written < 0 ? -1 : read + written,
                    .nodes = NumbersIn(TextIn(fields, "where"))});
  }
  std::ranges::stable_sort(*out, {}, [](const MeasuredKernel& kernel) {
    return kernel.nodes.empty() ? FlatProgram::kNone : kernel.nodes[0];
  });
  return true;
}

}  // namespace weft::cli
