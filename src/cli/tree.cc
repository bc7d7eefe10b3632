// See tree.h.
#include "src/cli/tree.h"

#include <algorithm>
#include <charconv>
#include <ctime>

namespace weft::cli {
namespace {

// Walks a tree; `problem` says what ended it.
struct Walk {
  weft_tree* tree;
  std::string problem = {};

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }

  bool Dict(uint32_t node, Fields* out) {
    uint32_t count = 0;
    if (!Done(weft_tree_size(tree, node, &count))) return false;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t child = 0;
      const char* key = nullptr;
      size_t length = 0;
      Value value("");
      if (!Done(weft_tree_child(tree, node, i, &child)) || !Done(weft_tree_key(tree, child, &key, &length)) ||
          !Any(child, &value)) {
        return false;
      }
      out->emplace_back(std::string(key, length), std::move(value));
    }
    return true;
  }

  bool Elements(uint32_t node, List* out) {
    uint32_t count = 0;
    if (!Done(weft_tree_size(tree, node, &count))) return false;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t child = 0;
      Value value("");
      if (!Done(weft_tree_child(tree, node, i, &child)) || !Any(child, &value)) return false;
      out->push_back(std::move(value));
    }
    return true;
  }

  bool Any(uint32_t node, Value* out) {
    weft_node_kind kind = WEFT_NODE_NONE;
    if (!Done(weft_tree_kind(tree, node, &kind))) return false;
    switch (kind) {
      case WEFT_NODE_DICT: return Dict(node, &out->data.emplace<Fields>());
      case WEFT_NODE_LIST:
      case WEFT_NODE_TUPLE: return Elements(node, &out->data.emplace<List>());
      case WEFT_NODE_BOOL: {
        int32_t truth = 0;
        if (!Done(weft_tree_get_bool(tree, node, &truth))) return false;
        return *out = truth != 0, true;
      }
      case WEFT_NODE_I64: return Done(weft_tree_get_i64(tree, node, &out->data.emplace<int64_t>()));
      case WEFT_NODE_F64: {
        double number = 0;
        char text[40];
        if (!Done(weft_tree_get_f64(tree, node, &number))) return false;
        return *out = std::string(text, std::to_chars(text, text + sizeof(text), number).ptr), true;
      }
      case WEFT_NODE_TEXT:
      case WEFT_NODE_BYTES: {
        const void* data = nullptr;
        size_t length = 0;
        if (!Done(weft_tree_get_data(tree, node, &data, &length))) return false;
        return *out = std::string(static_cast<const char*>(data), length), true;
      }
      default: return *out = "", true;
    }
  }
};

const Value* Find(const Fields& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Fields::value_type::first);
  return found == fields.end() ? nullptr : &found->second;
}

}  // namespace

bool FieldsOf(weft_tree* tree, uint32_t node, Fields* out, std::string* problem) {
  Walk walk{tree};
  const bool done = walk.Dict(node, out);
  *problem = walk.problem;
  return done;
}

bool Describe(const std::string& path, Fields* out, std::string* problem) {
  weft_tree* made = nullptr;
  *problem = MessageOf(weft_file_describe(path.data(), path.size(), &made));
  if (!problem->empty()) return false;
  const Tree tree(made);
  return FieldsOf(made, WEFT_TREE_ROOT, out, problem);
}

std::string TextIn(const Fields& fields, std::string_view name) {
  const Value* found = Find(fields, name);
  const auto* text = found == nullptr ? nullptr : std::get_if<std::string>(&found->data);
  return text == nullptr ? "" : *text;
}

int64_t NumberIn(const Fields& fields, std::string_view name) {
  const Value* found = Find(fields, name);
  const auto* number = found == nullptr ? nullptr : std::get_if<int64_t>(&found->data);
  return number == nullptr ? 0 : *number;
}

const List& ListIn(const Fields& fields, std::string_view name) {
  static const List kNone;
  const Value* found = Find(fields, name);
  const auto* list = found == nullptr ? nullptr : std::get_if<List>(&found->data);
  return list == nullptr ? kNone : *list;
}

std::string TimeText(int64_t unix_nanoseconds) {
  const std::time_t seconds = unix_nanoseconds / 1000000000;
  std::tm broken = {};
  char text[40] = "";
  if (gmtime_r(&seconds, &broken) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &broken);
  return text;
}

}  // namespace weft::cli
