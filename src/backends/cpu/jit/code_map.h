// Where generated code lies, written for perf: its map of names, or a dump of the code itself. One file a process, whichever contexts
// compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace weft::cpu {

enum class PerfFile : uint8_t {
  kOff,
  kMap,      // perf-PID.map: a line a function. Code that went and whose place others took has its line still
  kJitDump,  // jit-PID.dump: a record a function with its code and its time, for `perf inject --jit`
};

struct LoadedFunction {
  std::string name;
  uint64_t address = 0, bytes = 0;
};

// Adds functions whose code is in its place. The first call makes the file in the folder JITDUMPDIR, without it in /tmp: with
// O_EXCL and for this user alone, never through a link. A file of the name is removed first if it is this user's and older than the
// process. What fails once is told once and
// left alone from then on. Thread rule: any thread.
absl::Status AddToPerfFile(PerfFile form, std::span<const LoadedFunction> functions);

}  // namespace weft::cpu
