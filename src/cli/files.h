// Files that a command reads.
#pragma once

#include <string>

namespace weft::cli {

// Regular files alone: a device may have no end, and a FIFO waits for somebody. False: `problem` says what is at the
// path. Checks that there is a regular file that may be read; else says what is there instead.
bool CanBeRead(const std::string& path, std::string* problem);
bool ReadFile(const std::string& path, std::string* content, std::string* problem);

}  // namespace weft::cli
