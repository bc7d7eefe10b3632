// Tells others where generated code lies: perf by a file (code_map.h), GDB by its interface for compilers at run time, and libgcc's
// unwinder. The linker asks it about each object, compiled here or loaded from the cache alike.
#pragma once

#include <memory>

#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "src/backends/cpu/jit/jit.h"

namespace weft::cpu {

// With nothing to tell it takes the unwinding information out of objects, which then costs no memory.
std::shared_ptr<llvm::orc::ObjectLinkingLayer::Plugin> NewCodeTeller(CodeWatch watch);

}  // namespace weft::cpu
