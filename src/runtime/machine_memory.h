// How much memory the machine still gives this process. The allocator cannot say: with overcommit it grants a terabyte,
// and who then writes to it is killed.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

struct MachineMemory {
  int64_t total = -1;      // -1: unknown
  int64_t available = -1;  // without swapping others out; what the kernel can drop counts as free
};

// The least of what the machine and the control groups (version 1 and 2) around this process have. Reads a few files,
// about 50 µs. `root` is for tests.
MachineMemory ReadMachineMemory(const std::string& root = "");

// Tells whether so many bytes are to be had, as far as anybody knows: asked before memory is filled whose size a
// caller's shape decides. Small sizes are not asked for.
bool MachineHas(int64_t bytes);

}  // namespace weft
