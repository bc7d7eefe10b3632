// This text is what `weft show` says; `weft ckpt show` uses it, too.
#pragma once

#include <string>

namespace weft::cli {

// The exit status; errors begin with `command` ("weft show").
int ShowFile(const std::string& path, bool json, const char* command);

}  // namespace weft::cli
