// Machine code from loop kernels: LLVM IR with explicit vectors, no LLVM passes (they buy nothing on such code and cost
// 2-5 ms a kernel). Sizes and strides are run-time arguments, so that kernels of one form share their code.
#pragma once

#include <span>
#include <string>

#include "src/backends/cpu/jit/jit.h"
#include "src/backends/cpu/loop/loop_plan.h"

namespace weft::cpu {

// A compiled kernel does tasks [begin, end) of LoopPlan::tasks. `scratch` is the calling thread's own.
using LoopFn = void(void* const* buffers, const int64_t* params, int64_t begin, int64_t end, void* scratch);

// One object with a function for each kernel, named by `symbols`; or a text of it.
absl::StatusOr<std::string> CompileLoops(const Jit& jit, std::span<const LoopKernel* const> kernels,
                                         std::span<const std::string> symbols, Jit::Form form = Jit::Form::kObject);
// LLVM's text of one kernel, for dumps.
absl::StatusOr<std::string> LoopText(const LoopKernel& kernel, const CpuTarget& target);

}  // namespace weft::cpu
