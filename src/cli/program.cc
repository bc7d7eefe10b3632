// See program.h.
#include "src/cli/program.h"

#include "src/cli/files.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

// Behind spaces and comments Weft's own text begins with one of these words.
bool IsOwnText(std::string_view text) {
  while (!text.empty()) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with("//")) break;
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
  return text.starts_with("func @") || text.starts_with("private func @") || text.starts_with("module {words") ||
         text.starts_with("module {replicas") || text.starts_with("module {partitions");
}

}  // namespace

Function ReadProgram(weft_context* context, const std::string& path, std::string* problem) {
  Fields about;
  weft_function* read = nullptr;
  if (!CanBeRead(path, problem) || !Describe(path, &about, problem)) return nullptr;
  const std::string kind = TextIn(about, "kind");
  if (kind == "function" || kind == "cache_entry") {
    *problem = MessageOf(weft_function_load(context, path.data(), path.size(), &read));
    return Function(read);
  }
  std::string text;
  if (!ReadFile(path, &text, problem)) return nullptr;
  const auto from_text = IsOwnText(text) ? &weft_function_from_text : &weft_function_from_stablehlo;
  *problem = MessageOf(from_text(context, text.data(), text.size(), &read));
  if (!problem->empty()) *problem = path + ": " + *problem;
  return Function(read);
}

bool TextOf(weft_error* error, weft_blob* made, std::string* text, std::string* problem) {
  const Blob owner(made);
  *problem = MessageOf(error);
  if (!problem->empty()) return false;
  text->assign(static_cast<const char*>(weft_blob_data(made)), weft_blob_size(made));
  return true;
}

}  // namespace weft::cli
