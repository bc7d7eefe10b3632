// Machine code from loop kernels: LLVM IR with explicit vectors, no LLVM passes (they buy nothing on such code and cost
// 2-5 ms a kernel). Sizes and strides are run-time arguments, so that kernels of one form share their code.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/backends/cpu/jit/jit.h"
#include "src/backends/cpu/loop/loop.h"

namespace weft::cpu {

// A compiled kernel does tasks [begin, end) of LoopPlan::tasks. `scratch` is the calling thread's own.
using LoopFn = void(void* const* buffers, const int64_t* params, int64_t begin, int64_t end, void* scratch);

// How a kernel of given sizes runs.
struct LoopPlan {
  std::string key;  // kernels with equal keys share code; the code is EmitLoop of any of them
  std::vector<int64_t> params;
  int64_t tasks = 0;
  double cost = 0;  // rough picoseconds of one thread
  int64_t scratch_bytes = 0;
};
// Elements of an elementwise task along a vector dimension of this size.
int64_t ElementsOfTask(int64_t size);

LoopPlan PlanLoop(const LoopKernel& kernel, const CpuTarget& target);

// One object with a function for each kernel, named by `symbols`.
absl::StatusOr<std::string> CompileLoops(const Jit& jit, std::span<const LoopKernel* const> kernels,
                                         std::span<const std::string> symbols);
// LLVM's text of one kernel, for dumps.
absl::StatusOr<std::string> LoopText(const LoopKernel& kernel, const CpuTarget& target);

}  // namespace weft::cpu
