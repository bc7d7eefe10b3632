// A loaded program for people: what each entry of its lists is called, which code it runs, and what it does.
#pragma once

#include "src/backends/backend.h"
#include "src/backends/cpu/executable.h"

namespace weft::cpu {

// `threads`: of the pool that launches run on; choices may depend on it.
LaunchDescription Describe(const LoadedProgram& loaded, int threads);

// Fills LoadedProgram::texts.
void NameEntries(LoadedProgram& loaded);

// The names of the spans of a program's kernels.
struct KernelNames {
  struct Of {
    const SpanName* kernel = nullptr;  // null: an entry of lists
    const SpanName* share = nullptr;   // of a thread that helps
  };
  std::vector<std::vector<Of>> lists;  // as Program::lists
};
KernelNames NamesOf(const LoadedProgram& loaded, int threads);

}  // namespace weft::cpu
