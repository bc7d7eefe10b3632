// The states of the threads of another process, as Weft's library there writes them down.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace weft::cli {

// By thread: "waiting for the compiler for 1.204 s". Empty where the process has no table at that address, or one of another
// version, which `problem` says.
std::map<pid_t, std::string> ThreadWords(pid_t process, uint64_t address, std::string* problem);

}  // namespace weft::cli
