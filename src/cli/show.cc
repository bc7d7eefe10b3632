// `weft show`: what a file of tensors holds, without reading them: a checkpoint, or one of another format.
#include <charconv>
#include <cstdio>
#include <ctime>

#include "src/cli/command.h"
#include "src/cli/library.h"
#include "src/cli/npy.h"
#include "src/cli/show.h"

namespace weft::cli {
namespace {

using Reader = std::unique_ptr<weft_checkpoint_reader, Releases<&weft_checkpoint_reader_release>>;
using Tree = std::unique_ptr<weft_tree, Releases<&weft_tree_release>>;

// A file that is being looked at; `problem` says what ended it.
struct Look {
  std::string problem;
  Fields report;

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }

  bool At(const std::string& path) {
    const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
    weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
    options.settings = settings;
    options.setting_count = std::size(settings);
    weft_context* made = nullptr;
    if (!Done(weft_context_create(&options, &made))) return false;
    const Context context(made);
    weft_checkpoint_reader* opened = nullptr;
    if (!Done(weft_checkpoint_reader_open(made, path.c_str(), path.size(), &opened))) return false;
    const Reader reader(opened);
    return Itself(opened) && Words(opened) && Tensors(opened);
  }

  bool Itself(weft_checkpoint_reader* reader) {
    weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
    if (!Done(weft_checkpoint_reader_info(reader, &info))) return false;
    const std::time_t seconds = info.created_unix_ns / 1000000000;
    std::tm broken = {};
    char created[40] = "";
    if (gmtime_r(&seconds, &broken) != nullptr) std::strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &broken);
    const bool own = info.format == WEFT_FORMAT_WEFT;
    report = {{"format", NameOf(info.format)}};
    if (own || info.step != 0) report.emplace_back("step", info.step);
    if (own) {
      report.emplace_back("created", created);
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

const Registration kShow({.name = "show",
                          .summary = "what a file of tensors holds, of any format: its step, words, tensors",
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
