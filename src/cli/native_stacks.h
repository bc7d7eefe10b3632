// The stacks of another process's threads, by elfutils, which is looked for when it is wanted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft::cli {

struct NativeFrame {
  std::string function;  // "module+0x12ab" where nobody knows
  std::string location;  // "file:line", else the module and the offset in it
};
struct NativeThread {
  pid_t id = 0;
  std::string name;
  std::vector<NativeFrame> frames;  // the innermost first
  std::string problem;              // why there are no more frames; may be empty
  std::vector<NativeFrame> python;  // likewise, what it runs in Python: ReadStacks leaves it empty
};
// Where a process's Python has its state and the number of its version; 0: there is none.
struct PythonPlace {
  uint64_t runtime = 0, version = 0;
};
struct NativeStacks {
  std::vector<NativeThread> threads;
  uint64_t table = 0;  // where the process has the object weft_thread_table; 0: nowhere
  PythonPlace python;
};

// Stops each thread for a moment. False, and the problem.
bool ReadStacks(pid_t process, NativeStacks* out, std::string* problem);

}  // namespace weft::cli
