// Stacks of what each thread of a process runs in Python: CPython 3.11, 3.12 and 3.13, read from its memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/cli/native_stacks.h"

namespace weft::cli {

// By thread, the innermost frame first; a thread that runs no Python has none. The process runs meanwhile: a stack that changes is read
// again, and left out where it goes on changing. `problem` says why there are none of an interpreter that is not known.
std::map<pid_t, std::vector<NativeFrame>> PythonFrames(pid_t process, const PythonPlace& place, std::string* problem);

}  // namespace weft::cli
