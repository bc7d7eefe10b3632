// A heap that finds who writes where it must not: for kernels made at run time and for Fortran, which no sanitizer looks into. Each block
// has known bytes behind it, and what is freed is filled with others and kept for a while.
#pragma once

#include <cstddef>

namespace weft::fuzz {

// Tells whether the process was started with WEFT_FUZZ_GUARD in its environment; then all blocks are from this heap.
bool Guarded();

// Thread rule: any thread. A fork waits until no other thread changes the heap. Null without memory.
void* GuardTake(size_t align, size_t size);
// Each ends the process with a report if a byte behind the block or behind one freed earlier was written.
void GuardGive(void* block);
size_t GuardSizeOf(void* block);

}  // namespace weft::fuzz
