// `weft show`: what a file is and holds: tensors of any format, without reading them, a function, a program, a cache entry.
#include <charconv>
#include <cstdio>

#include "src/cli/command.h"
#include "src/cli/files.h"
#include "src/cli/library.h"
#include "src/cli/npy.h"
#include "src/cli/program.h"
#include "src/cli/show.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

using Reader = std::unique_ptr<weft_checkpoint_reader, Releases<&weft_checkpoint_reader_release>>;

// A file that is being looked at; `problem` says what ended it.
struct Look {
  std::string problem;
  Fields report;

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }

  bool At(const std::string& path) {
    Context context;
    if (!Done(CreateWithoutCache(&context))) return false;
    weft_context* const made = context.get();
    Fields about;
    if (CanBeRead(path, &problem) && !Describe(path, &about, &problem)) return false;
    const std::string kind = TextIn(about, "kind");
    weft_function* read = nullptr;
    if (kind == "cache_entry") return Entry(about);
    if (kind == "function") return Done(weft_function_load(made, path.data(), path.size(), &read)) && Shape(read, kind);
    weft_checkpoint_reader* opened = nullptr;
    weft_error* const error = weft_checkpoint_reader_open(made, path.c_str(), path.size(), &opened);
    if (error != nullptr && kind == "unknown" && Program(made, path)) return weft_error_release(error), true;
    if (!Done(error)) return false;
    const Reader reader(opened);
    return Itself(opened) && Words(opened) && Tensors(opened);
  }

  // Text of StableHLO; false for anything else, which somebody else has an error for.
  bool Program(weft_context* context, const std::string& path) {
    std::string text, ignored;
    weft_function* read = nullptr;
    if (!ReadFile(path, &text, &ignored) || text.find("func.func") == std::string::npos) return false;
    return Done(weft_function_from_stablehlo(context, text.data(), text.size(), &read)) && Shape(read, "stablehlo");
  }

  // Takes the function.
  bool Shape(weft_function* read, std::string_view format) {
    const Function function(read);
    weft_blob *name = nullptr, *key = nullptr;
    if (!Done(weft_function_name(read, &name))) return false;
    const Blob name_owner(name);
    if (!Done(weft_function_key(read, &key))) return false;
    const Blob key_owner(key);
    const auto text = [](weft_blob* blob) {
      return std::string(static_cast<const char*>(weft_blob_data(blob)), weft_blob_size(blob));
    };
    report = {{"format", format}, {"name", text(name)}, {"key", text(key)}};
    return Types(read, "inputs", &weft_function_inputs) && Types(read, "results", &weft_function_results);
  }

  bool Types(weft_function* function, std::string_view what,
             weft_error* (*ask)(weft_function*, weft_tensor_info*, size_t, size_t*) noexcept) {
    size_t count = 0;
    if (!Done(ask(function, nullptr, 0, &count))) return false;
    std::vector<weft_tensor_info> types(count);
    if (!Done(ask(function, types.data(), count, &count))) return false;
    List rows;
    for (const weft_tensor_info& type : types) rows.push_back(TypeText(type.dtype, type.dims, type.rank));
    report.emplace_back(what, std::move(rows));
    return true;
  }

  bool Entry(const Fields& about) {
    problem = TextIn(about, "problem");
    if (!problem.empty()) return false;
    report = {{"format", "cache entry"}};
    for (const auto& [name, value] : about) {
      if (name == "kind" || name == "what") continue;
      if (name == "created_unix_ns") {
        report.emplace_back("created", TimeText(NumberIn(about, name)));
      } else {
        report.emplace_back(name == "bytes" ? "file_bytes" : name, value);
      }
    }
    return true;
  }

  bool Itself(weft_checkpoint_reader* reader) {
    weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
    if (!Done(weft_checkpoint_reader_info(reader, &info))) return false;
    const bool own = info.format == WEFT_FORMAT_WEFT;
    report = {{"format", NameOf(info.format)}};
    if (own || info.step != 0) report.emplace_back("step", info.step);
    if (own) {
      report.emplace_back("created", TimeText(info.created_unix_ns));
      report.emplace_back("producer", std::string(info.producer, info.producer_length));
    }
    report.emplace_back("file_bytes", static_cast<int64_t>(info.file_bytes));
    report.emplace_back("tensor_bytes", static_cast<int64_t>(info.tensor_bytes));
    return true;
  }

  static std::string_view NameOf(weft_file_format format) {
    constexpr std::string_view kNames[] = {"weft", "safetensors", "npy", "npz", "pytorch", "gguf"};
    return format < std::size(kNames) ? kNames[format] : "unknown";
  }

  // A word's text; lists only by their length, because a tokenizer's has 262,144 texts.
  bool Word(weft_tree* tree, uint32_t node, std::string* out) {
    weft_node_kind kind = WEFT_NODE_NONE;
    if (!Done(weft_tree_kind(tree, node, &kind))) return false;
    switch (kind) {
      case WEFT_NODE_TEXT:
      case WEFT_NODE_BYTES: {
        const void* value = nullptr;
        size_t length = 0;
        if (!Done(weft_tree_get_data(tree, node, &value, &length))) return false;
        out->assign(static_cast<const char*>(value), length);
        return true;
      }
      case WEFT_NODE_BOOL: {
        int32_t truth = 0;
        if (!Done(weft_tree_get_bool(tree, node, &truth))) return false;
        return *out = truth != 0 ? "true" : "false", true;
      }
      case WEFT_NODE_I64: {
        int64_t number = 0;
        if (!Done(weft_tree_get_i64(tree, node, &number))) return false;
        return *out = std::to_string(number), true;
      }
      case WEFT_NODE_F64: {
        double number = 0;
        char text[40];
        if (!Done(weft_tree_get_f64(tree, node, &number))) return false;
        return out->assign(text, std::to_chars(text, text + sizeof(text), number).ptr), true;
      }
      default: {
        uint32_t count = 0;
        if (!Done(weft_tree_size(tree, node, &count))) return false;
        return *out = "[" + std::to_string(count) + " values]", true;
      }
    }
  }

  bool Words(weft_checkpoint_reader* reader) {
    weft_tree* read = nullptr;
    uint32_t count = 0;
    if (!Done(weft_checkpoint_reader_metadata(reader, &read))) return false;
    const Tree tree(read);
    if (!Done(weft_tree_size(read, WEFT_TREE_ROOT, &count))) return false;
    Fields words;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t node = 0;
      const char* key = nullptr;
      size_t key_length = 0;
      std::string word;
      if (!Done(weft_tree_child(read, WEFT_TREE_ROOT, i, &node)) ||
          !Done(weft_tree_key(read, node, &key, &key_length)) || !Word(read, node, &word)) {
        return false;
      }
      words.emplace_back(std::string(key, key_length), std::move(word));
    }
    if (!words.empty()) report.emplace_back("metadata", std::move(words));
    return true;
  }

  bool Tensors(weft_checkpoint_reader* reader) {
    size_t count = 0;
    if (!Done(weft_checkpoint_reader_count(reader, &count))) return false;
    List rows;
    for (size_t i = 0; i < count; ++i) {
      weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
      if (!Done(weft_checkpoint_reader_entry(reader, i, &entry))) return false;
      Fields row = {{"path", std::string(entry.path, entry.path_length)},
                    {"type", TypeText(entry.dtype, entry.dims, entry.rank)},
                    {"bytes", static_cast<int64_t>(entry.size_bytes)}};
      if (entry.encoding_length > 0) row.emplace_back("encoding", std::string(entry.encoding, entry.encoding_length));
      if (entry.stored != entry.dtype) row.emplace_back("stored", TypeText(entry.stored, entry.dims, entry.rank));
      rows.push_back(std::move(row));
    }
    report.emplace_back("tensors", std::move(rows));
    return true;
  }
};

int Execute(const Arguments& arguments) {
  return ShowFile(std::string(arguments.parameter), arguments.has("--json"), "weft show");
}

const Registration kShow(
    {.name = "show",
     .summary = "what a file is and holds: tensors of any format, a function, a program, a cache entry",
     .parameter = "FILE",
     .flags = {{"--json", "as one JSON object"}},
     .execute = Execute});

}  // namespace

int ShowFile(const std::string& path, bool json, const char* command) {
  Look look;
  if (!look.At(path)) {
    std::fprintf(stderr, "%s: %s\n", command, look.problem.c_str());
    return kFailed;
  }
  Print(look.report, json);
  return kDone;
}

}  // namespace weft::cli
