// The meaning of the CPU backend's loop IR, one element at a time: slow and obvious. Tests hold machine code against it.
#pragma once

#include <vector>

#include "src/backends/cpu/loop/loop.h"

namespace weft::test {

// Runs the kernel over host memory.
void EvaluateLoop(const cpu::LoopKernel& kernel, const std::vector<void*>& buffers);

}  // namespace weft::test
