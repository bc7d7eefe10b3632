// A weft_tree of plain values as what a command prints, and what a file is.
#pragma once

#include <string>

#include "src/cli/library.h"
#include "src/cli/report.h"

namespace weft::cli {

using Tree = std::unique_ptr<weft_tree, Releases<&weft_tree_release>>;

// A dict's values, of any depth. False, and the problem, where the library says no.
bool FieldsOf(weft_tree* tree, uint32_t node, Fields* out, std::string* problem);
// The answer of weft_file_describe.
bool Describe(const std::string& path, Fields* out, std::string* problem);

// A field by name: empty and 0 where there is none.
std::string TextIn(const Fields& fields, std::string_view name);
int64_t NumberIn(const Fields& fields, std::string_view name);
const List& ListIn(const Fields& fields, std::string_view name);

// "2026-11-27T08:05:00Z"
std::string TimeText(int64_t unix_nanoseconds);

}  // namespace weft::cli
