// What `weft show` says, for `weft ckpt show`, too.
#pragma once

#include <string>

namespace weft::cli {

// The exit status; errors begin with `command` ("weft show").
int ShowFile(const std::string& path, bool json, const char* command);

}  // namespace weft::cli
