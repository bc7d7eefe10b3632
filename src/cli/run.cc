// `weft run`: a program of StableHLO or Weft's own text, a function that was saved, or an entry of the compile cache, on arrays out of
// files.
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "src/cli/command.h"
#include "src/cli/library.h"
#include "src/cli/measured.h"
#include "src/cli/npy.h"
#include "src/cli/program.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

using Tensor = std::unique_ptr<weft_tensor, Releases<&weft_tensor_release>>;
using Reader = std::unique_ptr<weft_checkpoint_reader, Releases<&weft_checkpoint_reader_release>>;

constexpr size_t kShown = 8;  // elements of a result without a file

std::string TypeOf(const weft_tensor_info& info) { return TypeText(info.dtype, info.dims, info.rank); }

std::string Joined(const std::vector<weft_tensor_info>& types) {
  std::string text;
  for (const weft_tensor_info& type : types) text += (text.empty() ? "" : ", ") + TypeOf(type);
  return text.empty() ? "none" : text;
}

// A run as far as it has come; `problem` says what ended it.
struct Run {
  std::string problem;
  Context context;
  Function function;
  std::vector<weft_tensor_info> input_types, result_types;
  std::vector<Tensor> inputs, results;

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }

  std::vector<weft_tensor_info> TypesOf(weft_error* (*ask)(weft_function*, weft_tensor_info*, size_t,
                                                           size_t*) noexcept) {
    size_t count = 0;
    if (!Done(ask(function.get(), nullptr, 0, &count))) return {};
    std::vector<weft_tensor_info> types(count);
    if (Done(ask(function.get(), types.data(), count, &count)) &&
        !std::ranges::all_of(types, HasNpy, &weft_tensor_info::dtype)) {
      problem = "the program has inputs or results of an element type that .npy files do not have";
    }
    return types;
  }

  bool Open(const std::string& path, std::string_view platform) {
    const weft_setting setting = {"platform", WEFT_STRLEN, platform.data(), platform.size()};
    weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
    if (!platform.empty()) options.settings = &setting, options.setting_count = 1;
    weft_context* made = nullptr;
    if (!Done(weft_context_create(&options, &made))) return false;
    context.reset(made);
    function = ReadProgram(made, path, &problem);
    if (!problem.empty()) return false;
    input_types = TypesOf(&weft_function_inputs);
    if (problem.empty()) result_types = TypesOf(&weft_function_results);
    return problem.empty();
  }

  bool Load(const std::vector<std::string_view>& files) {
    if (files.size() != input_types.size()) {
      problem = "the program takes " + std::to_string(input_types.size()) + " inputs (" + Joined(input_types) + "); " +
                std::to_string(files.size()) + " were given by --input";
      return false;
    }
    for (size_t i = 0; i < files.size(); ++i) {
      if (!LoadOne(std::string(files[i]), i)) return false;
    }
    return true;
  }

  // Zeros where a program is shown and not run.
  bool MakeInputs() {
    problem = MakeZeros(context.get(), input_types, &inputs);
    return problem.empty();
  }

  // The only array of a file. Elements that NumPy has no type for are what the program wants.
  bool LoadOne(const std::string& path, size_t input) {
    weft_checkpoint_reader* opened = nullptr;
    if (!Done(weft_checkpoint_reader_open(context.get(), path.data(), path.size(), &opened))) return false;
    const Reader reader(opened);
    size_t count = 0;
    weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
    if (!Done(weft_checkpoint_reader_count(opened, &count))) return false;
    if (count != 1) {
      problem = path + ": has " + std::to_string(count) + " arrays; an input is one";
      return false;
    }
    if (!Done(weft_checkpoint_reader_entry(opened, 0, &entry))) return false;
    const weft_dtype wanted_type = input_types[input].dtype;
    const bool bare = entry.loadable == 0 && IsBareByte(wanted_type);
    const std::string wanted = TypeOf(input_types[input]);
    const std::string type = TypeText(bare ? wanted_type : entry.dtype, entry.dims, entry.rank);
    if (type != wanted) {
      problem = path + ": is " + type + "; input " + std::to_string(input) + " of the program is " + wanted;
      return false;
    }
    weft_tensor* tensor = nullptr;
    if (!Done(bare
                  ? weft_checkpoint_reader_load_as(opened, entry.path, entry.path_length, wanted_type, nullptr, &tensor)
                  : weft_checkpoint_reader_load(opened, entry.path, entry.path_length, nullptr, &tensor))) {
      return false;
    }
    inputs.emplace_back(tensor);
    return true;
  }

  // A result as a file of its own, which appears whole or not at all.
  bool Write(size_t result, const std::string& path) {
    weft_tree* made = nullptr;
    if (!Done(weft_tree_create(&made))) return false;
    const Tree tree(made);
    constexpr std::string_view kKey = "result";
    weft_checkpoint_options options = WEFT_CHECKPOINT_OPTIONS_INIT;
    options.format = WEFT_FORMAT_NPY;
    options.durable = -1;
    return Done(weft_tree_add_tensor(made, WEFT_TREE_ROOT, kKey.data(), kKey.size(), results[result].get(), nullptr)) &&
           Done(weft_checkpoint_save(context.get(), path.data(), path.size(), made, &options, nullptr));
  }

  // Prints the program that computes the results.
  bool Show(weft_text_format format) {
    std::vector<weft_tensor*> out;
    for (const Tensor& result : results) out.push_back(result.get());
    weft_blob* made = nullptr;
    if (!Done(weft_program_text(context.get(), out.data(), out.size(), format, &made))) return false;
    const Blob text(made);
    std::fwrite(weft_blob_data(made), 1, weft_blob_size(made), stdout);
    return true;
  }

  // Records the results.
  bool Call() {
    std::vector<weft_tensor*> in, out(result_types.size());
    for (const Tensor& input : inputs) in.push_back(input.get());
    size_t count = 0;
    if (!Done(
            weft_function_call(context.get(), function.get(), in.data(), in.size(), out.data(), out.size(), &count))) {
      return false;
    }
    for (weft_tensor* tensor : out) results.emplace_back(tensor);
    return true;
  }
  bool Compute() {
    std::vector<weft_tensor*> out;
    for (const Tensor& result : results) out.push_back(result.get());
    return Done(weft_eval(context.get(), out.data(), out.size(), nullptr));
  }

  // For showing: one byte's elements as the numbers that they are.
  bool Read(size_t result, Array* array) {
    const weft_tensor_info& info = result_types[result];
    uint64_t size = 0;
    array->dtype = info.dtype;
    array->dims.assign(info.dims, info.dims + info.rank);
    if (IsBareByte(info.dtype)) {
      weft_tensor* numbers = nullptr;
      array->dtype = WEFT_F32;
      if (!Done(weft_convert(context.get(), results[result].get(), array->dtype, &numbers))) return false;
      results[result].reset(numbers);
    }
    if (!Done(weft_tensor_size(results[result].get(), &size))) return false;
    array->bytes.resize(size);
    return Done(weft_tensor_to_host(results[result].get(), array->bytes.data(), size));
  }
};

template <typename T>
T ElementOf(const Array& array, size_t i) {
  T value;
  std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double HalfOf(uint16_t bits) {
  const double sign = bits & 0x8000 ? -1 : 1, fraction = bits & 0x3FF;
  const int exponent = (bits >> 10) & 0x1F;
  if (exponent == 31) return fraction == 0 ? sign / 0.0 : 0.0 / 0.0;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25));
}

std::string NumberOf(double value, int digits) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits).ptr);
}

// "1.5-2j"
std::string ComplexOf(double real, double imaginary, int digits) {
  const std::string second = NumberOf(imaginary, digits);
  return NumberOf(real, digits) + (second[0] == '-' ? "" : "+") + second + "j";
}

std::string ElementText(const Array& array, size_t i) {
  switch (array.dtype) {
    case WEFT_BOOL: return ElementOf<uint8_t>(array, i) != 0 ? "true" : "false";
    case WEFT_I8: return std::to_string(ElementOf<int8_t>(array, i));
    case WEFT_I16: return std::to_string(ElementOf<int16_t>(array, i));
    case WEFT_I32: return std::to_string(ElementOf<int32_t>(array, i));
    case WEFT_I64: return std::to_string(ElementOf<int64_t>(array, i));
    case WEFT_U8: return std::to_string(ElementOf<uint8_t>(array, i));
    case WEFT_U16: return std::to_string(ElementOf<uint16_t>(array, i));
    case WEFT_U32: return std::to_string(ElementOf<uint32_t>(array, i));
    case WEFT_U64: return std::to_string(ElementOf<uint64_t>(array, i));
    case WEFT_F16: return NumberOf(HalfOf(ElementOf<uint16_t>(array, i)), 5);
    case WEFT_BF16: {
      const uint32_t bits = uint32_t{ElementOf<uint16_t>(array, i)} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return NumberOf(value, 4);
    }
    case WEFT_F32: return NumberOf(ElementOf<float>(array, i), 9);
    case WEFT_C64: return ComplexOf(ElementOf<float>(array, 2 * i), ElementOf<float>(array, 2 * i + 1), 9);
    case WEFT_C128: return ComplexOf(ElementOf<double>(array, 2 * i), ElementOf<double>(array, 2 * i + 1), 17);
    default: return NumberOf(ElementOf<double>(array, i), 17);
  }
}

List Values(const Array& array) {
  int64_t count = 1;
  for (int64_t dim : array.dims) count *= dim;
  List values;
  for (size_t i = 0; i < std::min(static_cast<size_t>(count), kShown); ++i) values.push_back(ElementText(array, i));
  if (count > static_cast<int64_t>(kShown)) values.push_back("…");
  return values;
}

int Failed(const std::string& problem) {
  std::fprintf(stderr, "weft run: %s\n", problem.c_str());
  return kFailed;
}

int Execute(const Arguments& arguments) {
  Run run;
  const bool writes = arguments.has("--output");
  const std::string folder(arguments.value("--output", ""));
  struct stat seen = {};
  if (writes && (stat(folder.c_str(), &seen) != 0 || !S_ISDIR(seen.st_mode))) {
    return Failed("--output " + folder + ": there is no such folder");
  }
  static constexpr std::string_view kTexts[] = {"ir",   "stablehlo", "dot",  "optimised",
                                                "plan", "loops",     "llvm", "assembly"};
  const bool shows = arguments.has("--text");
  const std::string_view wanted = arguments.value("--text", "");
  const auto* const text = std::ranges::find(kTexts, wanted);
  if (shows && text == std::end(kTexts)) {
    const std::string_view near = Nearest(wanted, kTexts);
    return Failed("--text " + std::string(wanted) +
                  ": there are ir, stablehlo, dot, optimised, plan, loops, llvm and assembly" +
                  (near.empty() ? "" : "; did you mean " + std::string(near) + "?"));
  }
  const std::vector<std::string_view> files = arguments.values("--input");
  if (!run.Open(std::string(arguments.parameter), arguments.value("--platform", "")) ||
      !(shows && files.empty() ? run.MakeInputs() : run.Load(files)) || !run.Call()) {
    return Failed(run.problem);
  }
  if (shows) return run.Show(static_cast<weft_text_format>(text - kTexts)) ? kDone : Failed(run.problem);
  if (!run.Compute()) return Failed(run.problem);
  List rows;
  for (size_t i = 0; i < run.results.size(); ++i) {
    const std::string name = "result" + std::to_string(i);
    Fields row = {{"name", name}, {"type", TypeOf(run.result_types[i])}};
    if (writes) {
      const std::string path = folder + "/" + name + ".npy";
      if (!run.Write(i, path)) return Failed(run.problem);
      row.emplace_back("file", path);
    } else {
      Array array;
      if (!run.Read(i, &array)) return Failed(run.problem);
      row.emplace_back("values", Values(array));
    }
    rows.push_back(std::move(row));
  }
  Print({{"results", std::move(rows)}}, arguments.has("--json"));
  return kDone;
}

const Registration kRun(
    {.name = "run",
     .summary =
         "runs a program of StableHLO text, as JAX and others print it, of Weft's own text, or the file of a function, on arrays "
         "of .npy files",
     .parameter = "PROGRAM",
     .flags =
         {{"--input", "an input of the program, in its order; once for each", "FILE.npy"},
          {"--output", "writes result0.npy, result1.npy, … into the folder instead of showing the first elements",
           "DIR"},
          {"--text",
           "prints the program in place of running it: ir, stablehlo, dot (Graphviz), optimised, plan (what runs, entry by "
           "entry), loops, llvm or assembly; without --input on zeros",
           "FORMAT"},
          {"--platform", "cpu (the default) or reference, slow and plain", "NAME"},
          {"--json", "as one JSON object", ""}},
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
