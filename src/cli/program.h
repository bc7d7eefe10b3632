// A program out of a file of any kind, as a function.
#pragma once

#include <memory>
#include <string>

#include "src/cli/library.h"

namespace weft::cli {

using Function = std::unique_ptr<weft_function, Releases<&weft_function_release>>;

// StableHLO text, Weft's own text, the file of a function, or an entry of the compile cache; what the file holds decides. Null and
// the problem where it is none.
Function ReadProgram(weft_context* context, const std::string& path, std::string* problem);
// The text of a function or of a program, or the problem.
bool TextOf(weft_error* error, weft_blob* made, std::string* text, std::string* problem);

}  // namespace weft::cli
