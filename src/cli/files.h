// Files that a command reads and writes.
#pragma once

#include <string>

namespace weft::cli {

// Regular files alone: a device may have no end, and a FIFO waits for somebody. False: `problem` says what is at the path.
bool ReadFile(const std::string& path, std::string* content, std::string* problem);
// Under another name first: whoever sees the file sees all of it.
bool WriteFile(const std::string& path, const std::string& content, std::string* problem);

}  // namespace weft::cli
