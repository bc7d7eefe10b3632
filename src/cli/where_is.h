// A line that says what a process is doing.
#pragma once

#include <sys/types.h>

#include <string>

namespace weft::cli {

// The innermost frames of its first thread, of Python where it runs that: "step (train.py:88), <module> (train.py:120)"; or why nobody knows.
std::string WhereIs(pid_t process);

}  // namespace weft::cli
